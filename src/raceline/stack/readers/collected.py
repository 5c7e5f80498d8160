"""What is gathered while a text is read; the first statement of a fact wins, an exact one over a vague one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from raceline.measure.environment import Distribution, Environment, Gpu
from raceline.stack.readers.wording import Wording
from raceline.stack.told import Requirement, Source, SourceKind, Symptom, Told
from raceline.stack.versions import label_of

MOST_PACKAGES = 5000
MOST_SYMPTOMS = 40


class Collected:
    """Facts of a text in the making; `told()` is what it comes to."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.gpus: list[Gpu] = []
        self.distributions: dict[str, Distribution] = {}
        self.requirements: dict[str, Requirement] = {}
        self.symptoms: dict[tuple[str, tuple[tuple[str, str], ...]], Symptom] = {}
        self.lines: Counter[SourceKind] = Counter()
        self.index_labels: list[str] = []
        self.installers: dict[str, str] = {}
        self.base_image: str | None = None
        self.unread = 0

    def note(self, kind: SourceKind, count: int = 1) -> None:
        """Count lines that said something."""
        self.lines[kind] += count

    def set(self, **fields: Any) -> None:
        """Keep fields of the machine that are not known yet; None says nothing."""
        for name, value in fields.items():
            if value is not None and self.fields.get(name) in (None, (), "unknown"):
                self.fields[name] = value

    def add_gpu(self, gpu: Gpu) -> None:
        """Keep a GPU; the same one again is one more of it, or tells what was not known of it."""
        for index, known in enumerate(self.gpus):
            if known.name == gpu.name or not known.name or not gpu.name:
                capability, gfx = known.capability or gpu.capability, known.gfx or gpu.gfx
                memory = known.memory_gib or gpu.memory_gib
                self.gpus[index] = Gpu(
                    known.name or gpu.name, capability, gfx, memory, max(known.count, gpu.count)
                )
                return
        if len(self.gpus) < 64:
            self.gpus.append(gpu)

    def add_installed(self, item: Distribution) -> None:
        """Keep an installed package; one told with a version replaces one without."""
        known = self.distributions.get(item.name)
        if len(self.distributions) >= MOST_PACKAGES and known is None:
            return
        if known is None or (known.version is None and item.version is not None):
            label = item.label or (known.label if known else None)
            self.distributions[item.name] = msgspec.structs.replace(item, label=label)
        elif known.label is None and item.label is not None and item.version in (None, known.version):
            self.distributions[item.name] = msgspec.structs.replace(known, label=item.label)

    def add_wanted(self, item: Requirement) -> None:
        """Keep a wanted package; one with bounds or a build replaces one without."""
        known = self.requirements.get(item.name)
        if len(self.requirements) >= MOST_PACKAGES and known is None:
            return
        if known is None or (not known.specifier and item.specifier):
            self.requirements[item.name] = item
        elif item.extras and not known.extras:
            self.requirements[item.name] = msgspec.structs.replace(known, extras=item.extras)

    def add_worded(self, name: str, wording: Wording, source: SourceKind) -> None:
        """Keep what loose words say of a package."""
        if name == "onnxruntime" and wording.is_gpu:
            name = "onnxruntime-gpu"
        if wording.built_for is not None:
            self.add_symptom("xformers_built_for", {"built": wording.built_for}, "")
        if wording.compiled is not None:
            self.add_symptom("compiled_list", {"compiled": wording.compiled}, "")
        if wording.loaded is not None:
            self.set(cudnn=wording.loaded)
        if wording.is_wanted:
            bounds = wording.bounds or ""
            self.add_wanted(Requirement(name, bounds, wording.label, wording.extras, source))
            return
        self.add_installed(Distribution(name, wording.version, wording.label, wording.installer))

    def add_symptom(self, id: str, params: dict[str, str], line: str) -> None:
        """Keep a known error; the same with less said is dropped."""
        key = (id, tuple(sorted(params.items())))
        if len(self.symptoms) < MOST_SYMPTOMS and key not in self.symptoms:
            self.symptoms[key] = Symptom(id, params, line)

    def told(self) -> Told:
        """All of it as a value."""
        fields = dict(self.fields)
        torch_cuda = fields.pop("torch_cuda", None)
        if torch_cuda is not None:
            self.add_installed(Distribution("torch", None, label_of(torch_cuda)))
        environment = Environment(
            **fields, gpus=tuple(self.gpus), distributions=tuple(self.distributions.values())
        )
        return Told(
            environment=environment,
            requirements=tuple(self.requirements.values()),
            symptoms=_without_poorer(tuple(self.symptoms.values())),
            sources=tuple(Source(kind, count) for kind, count in self.lines.items()),
            index_labels=tuple(dict.fromkeys(self.index_labels)),
            installers=self.installers,
            base_image=self.base_image,
            unread_lines=self.unread,
        )


def _without_poorer(symptoms: tuple[Symptom, ...]) -> tuple[Symptom, ...]:
    """Symptoms without those of which another says the same and more."""
    return tuple(
        item
        for item in symptoms
        if not any(
            other is not item and other.id == item.id and item.params.items() < other.params.items()
            for other in symptoms
        )
    )
