"""Chats: messages as the text that a chat model reads, with the role of each token."""

from interp.chat.chat import Chat, chat_of

__all__ = ["Chat", "chat_of"]
