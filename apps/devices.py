"""Where is computed? On the device that was named, if it is there."""

import torch

from interp.errors import InvalidInput


def fastest() -> str:
    """A GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_of(name: str) -> torch.device:
    """A device that is there.

    Raises:
        InvalidInput: it is not.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"--device {name!r} can't be used: {reason}") from error
    if device.type == "meta":
        raise InvalidInput("--device 'meta' holds no numbers; take cpu or cuda.")
    return device
