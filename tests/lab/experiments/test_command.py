"""`gapless experiment`: figures, table and data of a quick run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from gapless.core.errors import UsageError
from gapless_lab.experiments.command import experiment, prepare, show
from gapless_lab.experiments.partitions import experiment as partitions
from gapless_lab.experiments.verdict import Verdict
from tests.lab.experiments.multicast.tiny import TINY as TINY_MULTICAST
from tests.lab.experiments.propagation.tiny import TINY

if TYPE_CHECKING:
    from pathlib import Path

app = typer.Typer()
app.command()(experiment)

TINY_PARTITIONS = partitions.Size(
    brokers=70,
    failed_counts=(5, 12),
    deliveries=((8, (1, 2, 3)),),
    publications=1,
    runs=1,
)


def assert_is_drawn(path: Path) -> None:
    from matplotlib.image import imread

    image = imread(path)
    assert min(image.shape[:2]) > 300
    colours = {tuple(pixel) for row in image[::3, ::3].tolist() for pixel in row}
    assert len(colours) > 50  # more than paper and one colour of ink


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One quick run for all tests: where the figures are, and what was printed."""
    folder = tmp_path_factory.mktemp("figures") / "new"
    options = ["exactly-once", "--quick", "--json", "--seed", "7", "--out", str(folder)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    return folder, result.stdout


@pytest.mark.parametrize("name", ["link-stall", "crashes", "overhead"])
def test_each_figure_is_an_image_with_something_on_it(
    quick_run: tuple[Path, str], name: str
) -> None:
    assert_is_drawn(quick_run[0] / f"{name}.png")


def test_data_is_json_and_has_every_experiment(quick_run: tuple[Path, str]) -> None:
    data = json.loads(quick_run[1])
    assert data["seed"] == 7
    assert len(data["faults"]) == 4
    assert len(data["faults"]["relay crash"]["worst_latency_s"]) == 10
    assert [each["subscriptions"] for each in data["overhead"]] == [10, 10, 40, 40]


def test_the_table_shows_each_claim_with_its_verdict(
    quick_run: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = [Verdict(**each) for each in json.loads(quick_run[1])["claims"]]
    assert len(verdicts) == 18
    verdicts[3] = verdicts[3]._replace(holds=False)
    show(verdicts)
    output = capsys.readouterr().out
    for words in ("only subscribers behind", "upstream nacks", "its return", "nothing lost"):
        assert words in output
    last = [line.split("│")[-2].strip() for line in output.splitlines() if "│" in line]
    assert last.count("no") == sum(not each.holds for each in verdicts) > 0
    assert f"{last.count('yes')} of 18 claims hold." in output


@pytest.fixture(scope="module")
def propagation_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of the other experiment, smaller than quick: its figures and table."""
    folder = tmp_path_factory.mktemp("propagation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gapless_lab.experiments.propagation.experiment.QUICK", TINY)
        result = CliRunner().invoke(app, ["propagation", "--quick", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


@pytest.mark.parametrize("name", ["load", "latency", "vectors", "failure"])
def test_each_figure_of_propagation_is_an_image_with_something_on_it(
    propagation_run: tuple[Path, str], name: str
) -> None:
    assert_is_drawn(propagation_run[0] / f"{name}.png")
    assert f"drew {propagation_run[0] / name}.png" in propagation_run[1].replace("\n", "")


def test_the_table_of_propagation_has_the_papers_values_and_the_cost_model(
    propagation_run: tuple[Path, str],
) -> None:
    output = propagation_run[1]
    for words in ("the paper", "our value", "26.5, 36, 45 ms", "Cost model", "of 22 claims hold"):
        assert words in output


@pytest.fixture(scope="module")
def partitions_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run smaller than quick: its figures and table."""
    folder = tmp_path_factory.mktemp("partitions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gapless_lab.experiments.partitions.experiment.QUICK", TINY_PARTITIONS)
        options = ["partitions", "--quick", "--runs", "2", "--out", str(folder)]
        result = CliRunner().invoke(app, options)
        assert result.exit_code == 0, result.output
        page = ["--page", str(folder / "docs")]
        again = CliRunner().invoke(app, [*options, "--json", *page])  # all of it was kept
    assert "232 of 232 runs are in" in again.stderr
    return folder, result.stdout + again.stdout


@pytest.mark.parametrize("name", ["connectivity", "delivery", "neighbourhoods", "sessions"])
def test_each_figure_of_partitions_is_an_image_with_something_on_it(
    partitions_run: tuple[Path, str], name: str
) -> None:
    assert_is_drawn(partitions_run[0] / f"{name}.png")


def test_a_page_is_written_with_its_figures(partitions_run: tuple[Path, str]) -> None:
    page = (partitions_run[0] / "docs" / "partitions.md").read_text()
    assert "| figure 11 |" in page
    assert (partitions_run[0] / "docs" / "partitions-sessions.png").exists()


def test_the_table_of_partitions_has_the_papers_values_and_data_every_run(
    partitions_run: tuple[Path, str],
) -> None:
    table, data = partitions_run[1].split("claims hold.", 1)
    for words in ("the paper", "our value", "figure 10", "97 %", "δ = 3:"):
        assert words in table
    runs = json.loads(data[data.index("{") :])["runs"]
    assert len(runs) == 26
    assert {len(outcomes) for outcomes in runs.values()} == {2, 20}


@pytest.fixture(scope="module")
def multicast_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run smaller than quick: its figures and table."""
    folder = tmp_path_factory.mktemp("multicast")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gapless_lab.experiments.multicast.experiment.QUICK", TINY_MULTICAST)
        result = CliRunner().invoke(app, ["multicast", "--quick", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


@pytest.mark.parametrize("name", ["hops", "delay", "stress", "repair"])
def test_each_figure_of_multicast_is_an_image_with_something_on_it(
    multicast_run: tuple[Path, str], name: str
) -> None:
    assert_is_drawn(multicast_run[0] / f"{name}.png")


def test_the_table_of_multicast_marks_what_is_recalled(multicast_run: tuple[Path, str]) -> None:
    for words in ("1.69 (recalled)", "hops (log16 N:", "of 12 claims hold", "A member takes"):
        assert words in multicast_run[1]


@pytest.mark.parametrize("option", ["--runs=2", "--master=local[1]"])
def test_options_for_runs_are_refused_where_there_are_none(option: str) -> None:
    result = CliRunner().invoke(app, ["durable", option])
    assert result.exit_code == 2
    assert "partitions" in result.output


def test_an_unknown_experiment_is_refused_by_name() -> None:
    result = CliRunner().invoke(app, ["at-most-once"])
    assert result.exit_code == 2
    assert "exactly-once" in result.output
    assert "propagation" in result.output


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder"):
        prepare(tmp_path / "file" / "below")


def test_what_was_kept_is_judged_only_where_it_was_kept() -> None:
    result = CliRunner().invoke(app, ["durable", "--kept"])
    assert result.exit_code == 2
    assert "--out" in result.output
