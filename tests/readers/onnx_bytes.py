"""ONNX files by hand, in the protobuf wire format."""

from __future__ import annotations


def varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def weight(name: str, *sizes: int, kind: int = 1) -> bytes:
    """A tensor whose data lie elsewhere, of floats unless `kind` says otherwise."""
    stated = b"".join(field(1, size) for size in sizes) + field(2, kind)
    return field(5, stated + field(8, name) + field(14, 1))


def port(name: str, kind: int, *sizes: int | str) -> bytes:
    shape = b"".join(field(1, field(1 if isinstance(size, int) else 2, size)) for size in sizes)
    return field(11, field(1, name) + field(2, field(1, field(1, kind) + field(2, shape))))


def node(operator: str, inputs: str, outputs: str, name: str = "", **attributes: int | str) -> bytes:
    """A node; `-` leaves an input or output out."""
    names = [field(1, item.replace("-", "")) for item in inputs.split()]
    names += [field(2, item.replace("-", "")) for item in outputs.split()]
    values = [
        field(5, field(1, key) + field(3 if isinstance(value, int) else 4, value))
        for key, value in attributes.items()
    ]
    return field(1, b"".join(names) + field(3, name) + field(4, operator) + b"".join(values))


def graph(*parts: bytes) -> bytes:
    return field(1, 8) + field(7, b"".join(parts))
