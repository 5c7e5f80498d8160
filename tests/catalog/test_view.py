from __future__ import annotations

import msgspec
import pytest

from raceline.catalog import lookup, types, view
from raceline.catalog.lookup import look_up, overview
from raceline.present import terminal
from raceline.present.errors import InputError
from raceline.present.layout import cell_width
from raceline.present.text import has_text

KINDS = ("accelerators", "cpus", "links", "storage", "offers", "retail", "electricity", "runtimes")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_list_fits_80_columns(kind: str, language: str) -> None:
    shown = terminal.render(look_up(kind).view(), language, width=80)
    assert max(map(cell_width, shown.splitlines())) <= 80


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("offers", "retail", "electricity")])
def test_a_row_can_be_shown_in_full(kind: str) -> None:
    # every seventh: all of them take seconds, and they share their code
    for row in look_up(kind).data[::7]:
        assert terminal.render(view.detail_view(row), "en")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_field_has_a_label(language: str) -> None:
    structs = (types.Accelerator, types.Cpu, types.Link, types.Storage, types.Offer, types.RetailPrice,
               types.ElectricityPrice, types.Runtime)  # fmt: skip
    names = {field.name for kind in structs for field in msgspec.structs.fields(kind)}
    missing = [
        name for name in names - {"name", "source_url"} if not has_text(f"catalog.field_{name}", language)
    ]
    assert missing == []


def test_one_accelerator_shows_its_sources_and_prices() -> None:
    shown = terminal.render(look_up("accelerators", "4090").view(), "en")
    assert "https://www.techpowerup.com" in shown
    assert "Rental prices" in shown


def test_a_name_of_several_lists_them() -> None:
    assert len(look_up("accelerators", "A100").data) == 4


def test_prices_are_found_by_device_and_by_provider() -> None:
    assert {row.accelerator for row in look_up("offers", "mi300x").data} == {"mi300x"}
    assert {row.provider for row in look_up("offers", "lambda").data} == {"lambda"}


def test_a_device_without_a_price_is_said() -> None:
    with pytest.raises(InputError, match="no_price"):
        look_up("offers", "k80-12gb")


def test_the_overview_counts_every_kind() -> None:
    assert set(overview().data) == set(KINDS)
    assert lookup.overview().data["accelerators"] > 250
