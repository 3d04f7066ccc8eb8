"""``nn.ModuleList`` with the type of its modules."""

from typing import Generic, TypeVar

from torch import nn

T = TypeVar("T", bound=nn.Module)


class TypedModuleList(nn.ModuleList, Generic[T]):
    """An ``nn.ModuleList`` of modules of one type."""
