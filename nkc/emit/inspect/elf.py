"""Reading an ELF64 file as bytes from anywhere: pyelftools reads it, and every fault is one `ObjectError`."""

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nkc.ir.errors import UsageError

if TYPE_CHECKING:
    from elftools.elf.sections import Section as ElfSection
    from elftools.elf.sections import Symbol as ElfSymbol


class ObjectError(UsageError):
    """A file that is not a code object nkc can read; says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section. size: bytes, also of one without contents (`.bss`-like), whose data is empty. note: holds notes.

    address: when loaded. offset: in the file.
    """

    name: str
    note: bool
    address: int
    offset: int
    size: int
    link: int
    info: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """One symbol: its value is an address, `section` the index of the section it lies in (0: none)."""

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
    symbols: tuple[Symbol, ...]

    def fault(self, what: str) -> ObjectError:
        """Return the error for something wrong in this file."""
        return ObjectError(f"{self.file}: {what} (the file is damaged, or not a kernel's code object)")

    def section(self, name: str) -> Section | None:
        """Return the first section of that name, if there is one."""
        return next((section for section in self.sections if section.name == name), None)

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


def read_elf(data: bytes, file: str) -> Elf:
    """Read the header, sections and symbols of an ELF64 little-endian file. Raises ObjectError.

    pyelftools trusts its input: what it makes of a damaged file is checked here, and what it trips over is one error.
    """
    if data[:4] != b"\x7fELF":
        raise ObjectError(f"{file}: not an ELF file (nkc inspects HSACO and cubin files)")
    if len(data) < 64 or data[4:6] != b"\x02\x01":
        raise ObjectError(f"{file}: not a whole 64-bit little-endian ELF file (nkc inspects HSACO and cubin files)")
    from elftools.elf.elffile import ELFFile  # loaded only where an object is read

    try:
        elf = ELFFile(io.BytesIO(data))
        header = elf.header
        sections = tuple(_section(section, len(data)) for section in elf.iter_sections())
        if header["e_phoff"] + header["e_phentsize"] * header["e_phnum"] > len(data):
            raise ValueError("the segment table reaches outside the file")
        tables = [section for section in elf.iter_sections() if section["sh_type"] in ("SHT_SYMTAB", "SHT_DYNSYM")]
        table = min(tables, key=lambda section: section["sh_type"] != "SHT_SYMTAB", default=None)
        symbols = () if table is None else tuple(_symbol(symbol) for symbol in table.iter_symbols())
    except Exception as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise ObjectError(f"{file}: {what[0].lower()}{what[1:]} (the file is cut short or damaged)") from None
    (machine,) = struct.unpack_from("<H", data, 18)
    return Elf(
        file=file,
        machine=machine,
        os_abi=data[7],
        abi_version=data[8],
        flags=header["e_flags"],
        sections=sections,
        symbols=symbols,
    )


def _section(section: "ElfSection", file_bytes: int) -> Section:
    header = section.header
    empty = header["sh_type"] in ("SHT_NOBITS", "SHT_NULL")
    if not empty and header["sh_offset"] + header["sh_size"] > file_bytes:
        raise ValueError("a section reaches outside the file")
    section.stream.seek(header["sh_offset"])
    return Section(
        name=section.name,
        note=header["sh_type"] == "SHT_NOTE",
        address=header["sh_addr"],
        offset=header["sh_offset"],
        size=header["sh_size"],
        link=header["sh_link"],
        info=header["sh_info"],
        data=b"" if empty else section.stream.read(header["sh_size"]),
    )


def _symbol(symbol: "ElfSymbol") -> Symbol:
    section = symbol["st_shndx"]
    return Symbol(
        name=symbol.name,
        value=symbol["st_value"],
        size=symbol["st_size"],
        section=section if isinstance(section, int) else 0,
    )
