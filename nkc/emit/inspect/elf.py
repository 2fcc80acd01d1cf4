"""Reading an ELF64 file as bytes from anywhere: every offset is checked, every fault is one `ObjectError`."""

import struct
from dataclasses import dataclass

from nkc.ir.errors import UsageError

SHT_NOTE = 7
SHT_NOBITS = 8
SHT_SYMTAB = 2
SHT_DYNSYM = 11


class ObjectError(UsageError):
    """A file that is not a code object nkc can read; says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section. size: bytes, also of a section without contents (`.bss`-like), whose data is empty."""

    name: str
    type: int
    address: int
    size: int
    link: int
    info: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """One symbol: its value is an address, `section` the index of the section it lies in."""

    name: str
    value: int
    size: int
    section: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """An ELF64 little-endian file. `file` is only for error texts."""

    file: str
    machine: int
    os_abi: int
    abi_version: int
    flags: int
    sections: tuple[Section, ...]

    def fault(self, what: str) -> ObjectError:
        """Return the error for something wrong in this file."""
        return ObjectError(f"{self.file}: {what} (the file is damaged, or not a kernel's code object)")

    def section(self, name: str) -> Section | None:
        """Return the first section of that name, if there is one."""
        return next((section for section in self.sections if section.name == name), None)

    def symbols(self) -> tuple[Symbol, ...]:
        """Return the symbols of the symbol table, or of the dynamic one in a stripped file."""
        kinds = [section.type for section in self.sections]
        kind = SHT_SYMTAB if SHT_SYMTAB in kinds else SHT_DYNSYM
        table = next((section for section in self.sections if section.type == kind), None)
        if table is None:
            return ()
        if table.link >= len(self.sections):
            raise self.fault(f"symbol table names string section {table.link}")
        names = self.sections[table.link].data
        return tuple(
            Symbol(name=_name(names, name, self.file), value=value, size=size, section=index)
            for name, _, _, index, value, size in struct.iter_unpack(
                "<IBBHQQ", table.data[: len(table.data) // 24 * 24]
            )
        )

    def contents(self, symbol: Symbol) -> bytes:
        """Return the bytes a symbol covers."""
        if symbol.section >= len(self.sections):
            raise self.fault(f"symbol `{symbol.name}` lies in section {symbol.section}, which is not there")
        section = self.sections[symbol.section]
        start = symbol.value - section.address
        if start < 0 or start + symbol.size > len(section.data):
            raise self.fault(f"symbol `{symbol.name}` reaches outside its section `{section.name}`")
        return section.data[start : start + symbol.size]

    def notes(self, section: Section) -> tuple[tuple[str, int, bytes], ...]:
        """Return the notes of a section: owner, type, description."""
        notes, data, at = [], section.data, 0
        while at + 12 <= len(data):
            name_size, size, kind = struct.unpack_from("<III", data, at)
            name_at = at + 12
            at = name_at + -(-name_size // 4) * 4
            if at + size > len(data):
                raise self.fault(f"a note in `{section.name}` reaches outside its section")
            owner = data[name_at : name_at + name_size].rstrip(b"\0").decode("latin-1")
            notes.append((owner, kind, data[at : at + size]))
            at += -(-size // 4) * 4
        return tuple(notes)


def _name(strings: bytes, at: int, file: str) -> str:
    end = strings.find(b"\0", at)
    if end < 0:
        raise ObjectError(f"{file}: a name reaches outside its string table (the file is damaged)")
    return strings[at:end].decode("latin-1")


def read_elf(data: bytes, file: str) -> Elf:
    """Read the header and the sections of an ELF64 little-endian file. Raises ObjectError."""
    if data[:4] != b"\x7fELF":
        raise ObjectError(f"{file}: not an ELF file (nkc inspects HSACO and cubin files)")
    if len(data) < 64 or data[4:6] != b"\x02\x01":
        raise ObjectError(f"{file}: not a whole 64-bit little-endian ELF file (nkc inspects HSACO and cubin files)")
    _, machine, _, _, segments, table, flags, _, segment, segment_count, size, count, names = struct.unpack_from(
        "<HHIQQQIHHHHHH", data, 16
    )
    if segments + segment * segment_count > len(data):
        raise ObjectError(f"{file}: the segment table reaches outside the file (the file is cut short or damaged)")
    if count and (size != 64 or table + count * size > len(data)):
        raise ObjectError(f"{file}: the section table reaches outside the file (the file is cut short or damaged)")
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + index * 64) for index in range(count)]
    bodies = []
    for _, kind, _, _, offset, length, _, _, _, _ in headers:
        if kind != SHT_NOBITS and offset + length > len(data):
            raise ObjectError(f"{file}: a section reaches outside the file (the file is cut short or damaged)")
        bodies.append(b"" if kind == SHT_NOBITS else data[offset : offset + length])
    strings = bodies[names] if names < count else b"\0"
    return Elf(
        file=file,
        machine=machine,
        os_abi=data[7],
        abi_version=data[8],
        flags=flags,
        sections=tuple(
            Section(
                name=_name(strings, name, file),
                type=kind,
                address=address,
                size=length,
                link=link,
                info=info,
                data=body,
            )
            for (name, kind, _, address, _, length, link, info, _, _), body in zip(headers, bodies, strict=True)
        ),
    )
