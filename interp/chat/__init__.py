"""Chats: messages as the text that a chat model reads, with the role of each token."""

from interp.chat.chat import Chat, chat_of
from interp.chat.templates import MAX_TEMPLATE, ChatTemplates

__all__ = ["MAX_TEMPLATE", "Chat", "ChatTemplates", "chat_of"]
