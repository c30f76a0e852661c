"""The fields of many records at once: plain Python hops from record to record, numpy reads what lies in between.

A record takes 0.15 µs for the hop and about as much for its numbers. Whoever uses this has a careful way for what is found
astray, and for few records, where numpy's calls cost more than they save.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

#: Below this many records numpy's calls cost more than they save.
TOGETHER_MIN = 48
#: Records that are looked at together, at most.
BLOCK_RECORDS = 8_192

Positions: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]


def record_ends(data: bytes | memoryview, position: int, count: int) -> list[int]:
    """Where each of `count` records ends by its length; none when one ends outside of the data. Lengths of more than three
    bytes are left to the careful way."""
    ends: list[int] = []
    append = ends.append
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                position += 1 + (byte >> 1)
            else:
                second = data[position + 1]
                if second < 0x80:
                    position += 2 + ((byte & 0x7F | second << 7) >> 1)
                else:
                    position += 3 + ((byte & 0x7F | (second & 0x7F) << 7 | data[position + 2] << 14) >> 1)
            append(position)
    except IndexError:
        return []
    return ends if position <= len(data) else []


class RecordFields:
    """One field after another of many records. Numbers are taken as they are written: zigzag, so 1 is -1."""

    def __init__(self, octets: Octets, positions: Positions) -> None:
        self._octets = octets
        self._last = len(octets) - 1
        self.positions = positions.copy()
        #: A number was longer than it may be, or beyond the end of the data.
        self.is_astray = False

    def take_int(self) -> Positions:
        octet = self._take()
        values = (octet & 0x7F).astype(np.int64)
        longer = np.flatnonzero(octet >= 0x80)
        for shift in (7, 14, 21):
            if not len(longer):
                return values
            octet = self._take(longer)
            values[longer] |= (octet & 0x7F).astype(np.int64) << shift
            longer = longer[octet >= 0x80]
        self.is_astray |= bool(len(longer))
        return values

    def take_long(self) -> Positions:
        """Numbers of up to 64 bits, as what they mean."""
        octet = self._take()
        values = (octet & 0x7F).astype(np.uint64)
        longer = np.flatnonzero(octet >= 0x80)
        for shift in range(7, 64, 7):
            if not len(longer):
                break
            octet = self._take(longer)
            values[longer] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
            longer = longer[octet >= 0x80]
        self.is_astray |= bool(len(longer))
        numbers: Positions = ((values >> np.uint64(1)) ^ (~(values & np.uint64(1)) + np.uint64(1))).view(np.int64)
        return numbers

    def skip_varint(self) -> None:
        longer = np.flatnonzero(self._take() >= 0x80)
        for _ in range(8):
            if not len(longer):
                return
            longer = longer[self._take(longer) >= 0x80]
        self.is_astray |= bool(len(longer))

    def _take(self, of: npt.NDArray[np.int64] | None = None) -> Octets:
        """The octets at the positions (of some records), which move on by one."""
        positions = self.positions if of is None else self.positions[of]
        if len(positions) and int(positions.max()) > self._last:
            self.is_astray = True
            positions = np.minimum(positions, self._last)
        octets: Octets = self._octets[positions]
        if of is None:
            self.positions += 1
        else:
            self.positions[of] += 1
        return octets
