"""`gapless experiment durable`: every figure has something on it, and the table is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from gapless_lab.experiments.command import experiment
from tests.lab.experiments.durable.tiny import tiny_results

if TYPE_CHECKING:
    from pathlib import Path

app = typer.Typer()
app.command()(experiment)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The command, with the results of a run smaller than quick: its figures and table."""
    folder, results = tmp_path_factory.mktemp("durable"), tiny_results()
    with pytest.MonkeyPatch.context() as patch:
        where = "gapless_lab.experiments.durable.experiment"
        patch.setattr(f"{where}.Results", lambda **_: results)
        patch.setattr(f"{where}.jobs", lambda *_: [])
        result = CliRunner().invoke(app, ["durable", "--quick", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


@pytest.mark.parametrize("name", ["peaks", "absences", "host-crash", "auto-acknowledge"])
def test_each_figure_is_an_image_with_something_on_it(run: tuple[Path, str], name: str) -> None:
    from matplotlib.image import imread

    image = imread(run[0] / f"{name}.png")
    assert min(image.shape[:2]) > 300
    colours = {tuple(pixel) for row in image[::3, ::3].tolist() for pixel in row}
    assert len(colours) > 50  # more than paper and one colour of ink
    assert f"drew {run[0] / name}.png" in run[1].replace("\n", "")


def test_the_table_has_the_papers_values_and_the_costs(run: tuple[Path, str]) -> None:
    for words in ("the paper", "our value", "50 ms, 44 of it", "event_alone 75", "of 24 claims"):
        assert words in run[1]
