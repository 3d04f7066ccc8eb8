"""``interp covariance``: which permutations and bases does a model's function not depend on?"""

from typing import TYPE_CHECKING

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import PermutationCovariance
    from apps.commands.inputs import Inputs


@analysis_command("Checking symmetries", reads=())
def covariance(inputs: "Inputs") -> "PermutationCovariance":
    """Check a model's exact symmetries: permuted tokens, heads, neurons; other bases of heads."""
    from analyses import permutation_covariance  # noqa: PLC0415

    return permutation_covariance(inputs.model, **inputs.how(permutation_covariance))
