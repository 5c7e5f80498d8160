"""What commands load once and pass down: the catalogue with the user's own rows, models, the date."""

from __future__ import annotations

import datetime
from functools import partial
from pathlib import Path

from raceline.estimate.hardware import Catalogue
from raceline.models.graph import Model


def catalogue(own_file: str | None = None) -> Catalogue:
    """The facts that ship with raceline, merged with a user's own file where one is named."""
    from raceline.catalog import load, own, resolve

    mine = own.load(Path(own_file)) if own_file else None
    return Catalogue(
        accelerators={**load.accelerators(), **(mine.accelerators if mine else {})},
        nodes={**load.nodes(), **(mine.nodes if mine else {})},
        links={**load.links(), **(mine.links if mine else {})},
        offers=(*load.offers(), *(mine.offers if mine else ())),
        resolve=partial(resolve.accelerator, own=mine),
        today=datetime.date.today(),
    )


def read(reference: str, image_size: int | None) -> Model:
    """A model by name, file, folder or hub reference."""
    from raceline.models.read import read_model

    return read_model(reference, image_size=image_size)
