"""What a child hands over besides its words."""

from fledge.core.handover import artifacts_folder


def test_a_child_that_shares_its_workspace_has_a_folder_of_its_own_to_hand_over_from() -> None:
    assert artifacts_folder("0123456789ab", owns_workspace=True) == "artifacts"
    assert artifacts_folder("0123456789ab", owns_workspace=False) == "artifacts/01234567"
    minute = ["01a1dea1-2d73-7be4-a1ce-f436f661c190", "01a1dea1-2d73-7be4-a1ce-f436f661c191"]
    assert len({artifacts_folder(name, owns_workspace=False) for name in minute}) == 2
