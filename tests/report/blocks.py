"""What tests read of sections: by structure, so that words may change."""

from murmura.report.content import Bars, Details, Grid, Paragraph, Pictures, Table


def blocks(section, kind):
    """All blocks of a class, folded ones too."""
    found = []
    for block in section.blocks:
        inside = block.groups if isinstance(block, Grid) else [block.blocks] if isinstance(block, Details) else []
        found += [block] * isinstance(block, kind)
        found += [one for group in inside for one in _in(group, kind)]
    return found


def _in(group, kind):
    return [one for one in group if isinstance(one, kind)]


def tables(section):
    """The texts of all cells, table by table."""
    return [[[cell.text for cell in row] for row in table.entries] for table in blocks(section, Table)]


def small(section):
    """All small print in tables."""
    return [text for table in blocks(section, Table) for row in table.entries for cell in row for text in cell.small]


def pictures(section):
    return [one for block in blocks(section, Pictures) for one in block.pictures]


def bars(section):
    return [(one.name, one.value, one.share) for block in blocks(section, Bars) for one in block.bars]


def said(section):
    """All sentences below the lead."""
    return " ".join(block.text for block in blocks(section, Paragraph))


def columns_of(section):
    """The columns of each table, by its title."""
    return {table.title: list(table.columns) for table in blocks(section, Table)}
