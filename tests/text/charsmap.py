"""SentencePiece's precompiled character map: a darts-clone double array and its replacements, in base64."""
import base64
import struct
import unicodedata

# What nmt_nfkc makes a blank, or drops.
BLANKS = [0x09, 0x0A, 0x0C, 0x0D, 0xA0, 0x1680, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x202F, 0x205F, 0x2581, 0x3000,
          0xFEFF, 0xFFFD]
DROPPED = [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]
# Characters with compatibility or canonical mappings, by block; a part of the real map's some 5,000.
BLOCKS = [(0xA0, 0x180), (0x300, 0x370), (0x1E00, 0x1F00), (0x2010, 0x2190), (0x2460, 0x2500), (0x3000, 0x3100),
          (0xF900, 0xFA00), (0xFB00, 0xFB50), (0xFF00, 0xFFF0)]


def rules():
    """{text: replacement} for single characters, and for a base and its mark that have a composed form."""
    table = {chr(code): " " for code in BLANKS} | {chr(code): "" for code in DROPPED}
    for begin, end in BLOCKS:
        for char in map(chr, range(begin, end)):
            mapped = unicodedata.normalize("NFKC", char)
            if mapped != char and char != "\uff5e":
                table.setdefault(char, mapped)
            apart = unicodedata.normalize("NFD", char)
            if len(apart) == 2 and unicodedata.normalize("NFC", apart) == char:
                table.setdefault(apart, char)
    return table


class DoubleArray:
    """Children of a node at `base` lie at base ^ label; a node's unit holds its label and position ^ base."""

    def __init__(self, table):
        self.units = {0: 0}
        self.bases = set()
        self.lowest = 1
        trie = {}
        for key, value in table.items():
            node = trie
            for byte in key.encode():
                node = node.setdefault(byte, {})
            node[0] = value
        self.place(trie, 0, 0)

    def place(self, node, position, label):
        base = self.free_base(sorted(node))
        self.bases.add(base)
        for child in node:
            self.units[base ^ child] = 0
        offset = position ^ base
        assert offset < 1 << 21
        self.units[position] = offset << 10 | (0x100 if 0 in node else 0) | label
        for child, below in sorted(node.items()):
            if child == 0:
                self.units[base] = 1 << 31 | below
            else:
                self.place(below, base ^ child, child)

    def free_base(self, labels):
        while self.lowest in self.units and self.lowest in self.bases:
            self.lowest += 1
        base = self.lowest
        while base in self.bases or any(base ^ label in self.units for label in labels):
            base += 1
        return base

    def pack(self):
        size = (max(self.units) | 255) + 1
        return b"".join(struct.pack("<I", self.units.get(i, 0)) for i in range(size))


def charsmap():
    replacements, offsets = b"", {}
    for text in sorted(set(rules().values())):
        offsets[text] = len(replacements)
        replacements += text.encode() + b"\0"
    trie = DoubleArray({key: offsets[value] for key, value in rules().items()}).pack()
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + replacements).decode()


def normalized_as_in_javascript(text):
    """@huggingface/tokenizers does not read the map: it maps blanks and then takes NFKC."""
    text = text.translate(dict.fromkeys(DROPPED) | {code: " " for code in BLANKS})
    return "\uff5e".join(unicodedata.normalize("NFKC", part) for part in text.split("\uff5e"))


def normalized_by_map(text, table):
    """What the map says of a text whose clusters are a character and marks or joiners, or CR LF."""
    clusters = []
    for char in text:
        extends = unicodedata.category(char).startswith("M") or char in "\u200c\u200d"
        if clusters and (extends and clusters[-1][-1] not in "\r\n" or (clusters[-1], char) == ("\r", "\n")):
            clusters[-1] += char
        else:
            clusters.append(char)
    out = ""
    for cluster in clusters:
        prefixes = [cluster[:n] for n in range(1, len(cluster) + 1) if cluster[:n] in table]
        if len(cluster.encode()) < 6 and prefixes:
            out += table[prefixes[0]]
        else:
            out += "".join(table.get(char, char) for char in cluster)
    return out
