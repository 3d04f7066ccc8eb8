"""Chat templates: messages as the text that a chat model reads, and what of it is whose."""

from interp.chat.marks import RenderedChat, Span, render_chat
from interp.chat.messages import ROLES, TEMPLATE, Message, messages_of
from interp.chat.templates import MAX_TEMPLATE, ChatTemplates

__all__ = [
    "MAX_TEMPLATE",
    "ROLES",
    "TEMPLATE",
    "ChatTemplates",
    "Message",
    "RenderedChat",
    "Span",
    "messages_of",
    "render_chat",
]
