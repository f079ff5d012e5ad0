"""Count tables: every dialect is read, and every fault is named with its place."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from diffurn.data import EXAMPLES, CountTable, CountTableError, example_counts, read_counts
from diffurn.data.counts import read_stream, why_unreadable
from diffurn.inference.reading.tables import terms_of

WIDE = "m_red,x_red,m_blue,x_blue\n5,3,9,2\n6,4,9,1\n"
LONG = "row,group,available,drawn\nA,red,5,3\nA,blue,9,2\nB,red,6,4\nB,blue,9,1\n"


def read(folder: Path, content: str | bytes, *covariates: str) -> CountTable:
    path = folder / "counts.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_counts(path, covariates)


def assert_red_and_blue(table: CountTable) -> None:
    assert table.groups == ("red", "blue")
    assert table.counts.tolist() == [[3, 2], [4, 1]]
    assert table.group_sizes.tolist() == [[5, 9], [6, 9]]
    assert (table.counts.dtype, table.frequencies, table.variables) == (torch.int64, None, {})
    assert table.left_out == (0, 0, ())


DIALECTS = {
    "commas": WIDE,
    "semicolons": WIDE.replace(",", ";"),
    "tabs": WIDE.replace(",", "\t"),
    "byte order mark": b"\xef\xbb\xbf" + WIDE.encode(),
    "line ends of Windows": WIDE.replace("\n", "\r\n"),
    "line ends of old Macs": WIDE.replace("\n", "\r"),
    "no line end after the last row": WIDE.rstrip("\n"),
    "blank lines": "\n  \n" + WIDE.replace("\n", "\n\n") + "\n \n\n",
    "spaces": WIDE.replace(",", " ,  "),
    "all quoted": "".join(
        ",".join(f'"{cell}"' for cell in line.split(",")) + "\n" for line in WIDE.splitlines()
    ),
    "whole numbers as pandas writes them beside gaps": WIDE.replace("9,", "9.0,"),
    "exponents and signs": WIDE.replace("9,", "+0.9e1,"),
    "columns in another order": "x_red,m_red,m_blue,x_blue\n3,5,9,2\n4,6,9,1\n",
    "other columns": "note,m_red,x_red,m_blue,x_blue,\n?,5,3,9,2,\n,6,4,9,1,end\n",
    "long": LONG,
    "long, shuffled lines": "group;drawn;note;available;row\nred;4;;6;B\n".replace(
        "red;4;;6;B", "red;3;;5;A\nblue;1;;9;B\nblue;2;;9;A\nred;4;;6;B"
    ),
}


@pytest.mark.parametrize("content", DIALECTS.values(), ids=DIALECTS.keys())
def test_every_dialect_reads_the_same(content: str | bytes, tmp_path: Path) -> None:
    assert_red_and_blue(read(tmp_path, content))


def test_standard_input_is_a_dash() -> None:
    program = "import diffurn.data as d; print(d.read_counts('-').counts.tolist())"
    command = [sys.executable, "-c", program]
    outcome = subprocess.run(command, input=WIDE.encode(), capture_output=True, check=True)
    assert outcome.stdout.decode().strip() == "[[3, 2], [4, 1]]"


def test_names_may_hold_separators_spaces_quotes_and_any_letters(tmp_path: Path) -> None:
    table = read(tmp_path, 'm_a;"m_b;c, d";"m_e ""f""";x_a;"x_b;c, d";"x_e ""f"""\n1;2;3;1;0;2\n')
    assert table.groups == ("a", "b;c, d", 'e "f"')
    assert read(tmp_path, "m_ω λ,m_ж,x_ω λ,x_ж\n2,2,1,1\n").groups == ("ω λ", "ж")


def test_rows_keep_their_labels(tmp_path: Path) -> None:
    assert read(tmp_path, LONG).row_labels == ("A", "B")
    assert read(tmp_path, "row,m_a,x_a,m_b,x_b\nfirst,1,1,1,0\n").row_labels == ("first",)
    assert read(tmp_path, WIDE).row_labels is None


def test_a_group_without_a_line_was_not_available(tmp_path: Path) -> None:
    table = read(tmp_path, "row,group,available,drawn\nA,red,5,3\nB,blue,9,1\nA,blue,9,2\n")
    assert table.group_sizes.tolist() == [[5, 9], [0, 9]]
    assert table.counts.tolist() == [[3, 2], [0, 1]]


def test_frequencies_are_read_in_both_formats(tmp_path: Path) -> None:
    wide = read(tmp_path, "m_a,x_a,m_b,x_b,frequency\n5,3,9,2,7\n6,4,9,1,0\n")
    long = read(
        tmp_path,
        "frequency,row,group,available,drawn\n7,A,a,5,3\n7,A,b,9,2\n0,B,a,6,4\n0,B,b,9,1\n",
    )
    for table in (wide, long):
        assert table.frequencies is not None
        assert table.frequencies.tolist() == [7, 0]


def test_covariates_are_of_rows_or_of_rows_and_groups(tmp_path: Path) -> None:
    wide = read(
        tmp_path,
        "age,cost_a,cost_b,m_a,x_a,m_b,x_b\n30,1.5,-2,5,3,9,2\n40,0,1e-3,6,4,9,1\n",
        "cost",
        "age",
    )
    long = read(
        tmp_path,
        "row,group,available,drawn,age,cost\nA,a,5,3,30,1.5\nA,b,9,2,30,-2\nB,a,6,4,40,0\nB,b,9,1,40,0.001\n",
        "cost",
        "age",
    )
    for table in (wide, long):
        assert tuple(table.variables) == ("cost", "age")
        assert table.variable("cost").values.tolist() == [[1.5, -2], [0, 0.001]]
        assert table.variable("age").values.tolist() == [[30, 30], [40, 40]]


def test_features_hold_own_weights_and_covariates_of_rows_by_group(tmp_path: Path) -> None:
    header = "age,cost_a,cost_b,cost_c,m_a,x_a,m_b,x_b,m_c,x_c\n"
    table = read(tmp_path, header + "30,1,2,3,5,3,9,2,4,1\n40,3,2,1,6,4,9,1,4,1\n", "age", "cost")
    terms = terms_of(table, ["age", "cost"], None, "b")
    assert terms.names == ("a", "c", "a:age", "c:age", "cost")
    assert terms.features[0].tolist() == [[1, 0, 30, 0, 1], [0, 0, 0, 0, 2], [0, 1, 0, 30, 3]]
    assert terms_of(table, ["age"], None, "a").names == ("b", "c", "b:age", "c:age")


def test_a_property_of_the_groups_takes_the_place_of_own_weights(tmp_path: Path) -> None:
    table = read(tmp_path, "size_a,size_b,m_a,x_a,m_b,x_b\n1,2,5,3,9,2\n1,2,6,4,9,1\n", "size")
    terms = terms_of(table, ["size"], None, "a")
    assert terms.names == ("size",)
    assert terms.features.tolist() == [[[1], [2]], [[1], [2]]]
    assert "size is a property of the groups" in terms.remarks[0]


def test_a_covariate_that_never_changes_is_refused(tmp_path: Path) -> None:
    table = read(tmp_path, "k,m_a,x_a,m_b,x_b\n1,5,3,9,2\n1,6,4,9,1\n", "k")
    with pytest.raises(ValueError, match="covariate 'k' is the same everywhere"):
        terms_of(table, ["k"], None, "a")


def test_examples_hold_the_published_totals() -> None:
    titanic, ucb = example_counts("titanic"), example_counts("ucb")
    assert dict(zip(titanic.groups, titanic.counts[0].tolist(), strict=True)) == {
        "1st class": 203,
        "2nd class": 118,
        "3rd class": 178,
        "Crew": 212,
    }
    assert titanic.group_sizes.sum() == 2201
    assert (ucb.group_sizes.sum(), ucb.counts.sum()) == (4526, 1755)  # applications and admissions
    assert ucb.group_sizes.sum(0).tolist() == [2691, 1835]  # men and women
    assert len(ucb.row_labels or ()) == 6
    assert set(EXAMPLES) == {"titanic", "ucb"}
    with pytest.raises(ValueError, match="only titanic and ucb"):
        example_counts("iris")


# content, and a part of the message: the line and column, and the reason
FAULTS: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "counts.csv: the file is empty"),
    "blank lines only": ("\n \n", "the file is empty"),
    "header only": ("m_a,x_a,m_b,x_b\n\n", "no row of counts"),
    "other columns": (
        "a,b\n1,2\n",
        "line 1: the columns are 'a', 'b', but a count table has the columns m_<group>",
    ),
    "available without drawn": (
        "m_a,x_a,m_b\n1,1,1\n",
        "line 1, column 'm_b': has no column 'x_b'",
    ),
    "drawn without available": (
        "\nm_a,x_a,x_b\n1,1,1\n",
        "line 2, column 'x_b': has no column 'm_b'",
    ),
    "group without a name": ("m_,x_,m_a,x_a\n1,1,1,1\n", "the name of the group is missing"),
    "a line break in the name of a group": (
        '"m_a\nb","x_a\nb",m_c,x_c\n1,1,1,1\n',
        "line 1, column 'm_a\\nb': the name 'a\\nb'",
    ),
    "a control character in the name of a group": (
        LONG.replace("red", "r\x1b[31m"),
        "column 'group': the name 'r\\x1b[31m'",
    ),
    "one group": ("m_a,x_a\n5,3\n", "only one group, 'a'"),
    "one group, long": ("row,group,available,drawn\nA,red,5,3\n", "only one group, 'red'"),
    "two columns of one name": (
        WIDE.replace("x_blue", "x_red"),
        "line 1, column 'x_red': two columns have this name",
    ),
    "text": (WIDE.replace("6,4", "6,four"), "line 3, column 'x_red': 'four' is not a number"),
    "numbers and text in a covariate": (
        "z,m_a,x_a,m_b,x_b\n15,5,3,9,2\n3o,5,3,9,2\n",
        "line 3, column 'z': '3o' is not a number, but other cells of this column are",
    ),
    "negative": (WIDE.replace("6,4", "-6,4"), "line 3, column 'm_red': '-6' is negative"),
    "fraction": (
        WIDE.replace("6,4", "6.5,4"),
        "line 3, column 'm_red': '6.5' is not a whole number",
    ),
    "not finite": (WIDE.replace("6,4", "inf,4"), "line 3, column 'm_red': 'inf' is not a number"),
    "digits of Python": (
        WIDE.replace("6,4", "6_0,4"),
        "line 3, column 'm_red': '6_0' is not a number",
    ),
    "digits of other scripts": (
        WIDE.replace("6,4", "٦,4"),
        "line 3, column 'm_red': '٦' is not a number",
    ),
    "decimal comma": (
        "z;m_a;x_a;m_b;x_b\n1,5;5;3;9;2\n",
        "line 2, column 'z': '1,5' is not a number; decimals are written with a point",
    ),
    "above 2^53": (
        WIDE.replace("6,4", f"{2**53 + 1},4"),
        "line 3, column 'm_red': '9007199254740993' is above 2^53",
    ),
    "above 2^64": (WIDE.replace("6,4", f"{10**30},4"), "line 3, column 'm_red'"),
    "5,000 digits": (WIDE.replace("6,4", "1" * 5000 + ",4"), "…' is above 2^53"),
    "above 2^53 in all": (
        WIDE.replace("9,1", f"{2**53},1"),
        "line 3: the balls available in this row are more than 2^53",
    ),
    "more drawn than available": (
        WIDE.replace("6,4", "6,7"),
        "line 3, column 'x_red': 7 drawn, but only 6 available",
    ),
    "more drawn than available, long": (
        LONG.replace("6,4", "6,7"),
        "line 4, column 'drawn': 7 drawn, but only 6 available",
    ),
    "nothing drawn": (
        "m_a,x_a,m_b,x_b\n6,0,9,0\n6,,9,0\n",
        "counts.csv: no row is left: 1 have missing values, and in 1 nothing is drawn",
    ),
    "too few cells": (WIDE.replace("9,1", "9"), "line 3: too few cells, 3 instead of the 4"),
    "too many cells": (WIDE.replace("9,1", "9,1,1"), "line 3: too many cells, 5 instead of the 4"),
    "a quote that never ends": (
        WIDE.replace("6,4", '"6,4'),
        "line 3: this is not delimited text (a quoted cell never ends)",
    ),
    "text after a quote": (WIDE.replace("6,4", '"6"0,4'), "line 3: this is not delimited text"),
    "Latin-1": (
        WIDE.replace("x_blue", "x_blå").encode("latin-1"),
        "line 1: byte 24 of the line is 0xE5, which is not UTF-8",
    ),
    "Latin-1 further down": (
        ("note," + WIDE.replace("\n", "\nä,")).encode("latin-1"),
        "line 2: byte 1 of the line is 0xE4",
    ),
    "a broken last letter": (WIDE.encode() + b"\xc3", "line 4: byte 1 of the line is 0xC3"),
    "UTF-16": (WIDE.encode("utf-16"), "encoded as UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (WIDE.encode("utf-16-le"), "line 1: there is a NUL byte"),
    "a NUL byte": (WIDE.replace("6,4", "6\0,4"), "line 3: there is a NUL byte"),
    "a workbook": (b"PK\x03\x04 and so on", "perhaps an Excel workbook"),
    "gzip": (b"\x1f\x8b and so on", "gzip"),
    "a program": (b"\x7fELF\x02\x01\x01\x00\x00", "line 1: there is a NUL byte"),
    "column missing, long": (
        LONG.replace("available", "there"),
        "line 1: the column 'available' is missing",
    ),
    "no row column, long": (LONG.replace("row,", "line,"), "line 1: the column 'row' is missing"),
    "group twice, long": (
        LONG + "A,red,5,3\n",
        "line 6: row 'A' has a second line for group 'red'",
    ),
    "label missing, long": (
        LONG.replace("B,red", ",red"),
        "line 4, column 'row': the cell is empty",
    ),
    "fractional frequency": (
        "frequency," + WIDE.replace("\n", "\n1.5,").rstrip("1.5,"),
        "line 2, column 'frequency': '1.5' is not a whole number",
    ),
    "negative frequency": (
        "m_a,x_a,m_b,x_b,frequency\n5,3,9,2,-1\n",
        "line 2, column 'frequency': '-1' is negative",
    ),
    "no frequency": (
        "m_a,x_a,m_b,x_b,frequency\n5,3,9,2,0\n",
        "column 'frequency': every frequency is 0",
    ),
    "two frequencies of one row": (
        "row,group,available,drawn,frequency\nA,red,5,3,2\nA,blue,9,2,3\n",
        "line 3, column 'frequency': row 'A' occurred 2 times by an earlier line, but 3 by this "
        "one",
    ),
    "a line without end": ("m_a" * 5_700_000, "longer than 16,777,216 characters"),
}


@pytest.mark.parametrize(("content", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_every_fault_is_named_with_its_place(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    covariates = ("z",) if isinstance(content, str) and content.startswith("z") else ()
    with pytest.raises(CountTableError) as error:
        read(tmp_path, content, *covariates)
    assert str(error.value).startswith(str(tmp_path / "counts.csv"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_line_numbers_are_those_of_an_editor(tmp_path: Path) -> None:
    header, first = '\n"a\nnote",m_red,x_red,m_blue,x_blue\n', '"two\nlines",5,3,9,2\n\n'
    content = header + first + '"three\r\nmore\nlines",6,4,9,oops\n'
    with pytest.raises(CountTableError, match=r"line 7, column 'x_blue': 'oops'"):
        read(tmp_path, content)


@pytest.mark.parametrize(("row", "fault"), [(9_000, "oops"), (30_000, "-1"), (19_999, "x")])
def test_a_fault_far_down_is_found(row: int, fault: str, tmp_path: Path) -> None:
    lines = ["m_red,x_red,m_blue,x_blue"] + ["5,3,9,2"] * 30_000
    lines[row] = f"5,3,9,{fault}"
    with pytest.raises(CountTableError, match=rf"line {row + 1}, column 'x_blue'"):
        read(tmp_path, "\n".join(lines))


class Trickle(io.BytesIO):
    """A stream that gives few bytes at a time, as a pipe may."""

    def __init__(self, content: bytes, at_once: int) -> None:
        super().__init__(content)
        self.at_once = at_once

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.at_once)


@pytest.mark.parametrize("at_once", range(1, 12))
def test_letters_and_line_ends_may_straddle_blocks(at_once: int) -> None:
    content = "note," + WIDE.replace("\n", "\r\nåß€𝄞,").removesuffix("åß€𝄞,")
    assert_red_and_blue(read_stream(Trickle(content.encode(), at_once), "counts.csv"))
    broken = content.replace("𝄞,6", "!6").encode().replace(b"!", b"\xff")
    with pytest.raises(CountTableError, match="line 3: byte 8 of the line is 0xFF"):
        read_stream(Trickle(broken, at_once), "counts.csv")


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        (
            ("age",),
            "line 1: for covariate 'age' there is neither a column 'age' nor one 'age_red' for "
            "each group",
        ),
        (
            ("cost",),
            "line 1: covariate 'cost' needs a column for each group, but 'cost_blue' is missing",
        ),
        (("m_red", "m_red"), "covariate 'm_red' was asked for twice"),
    ],
)
def test_a_covariate_that_is_not_there_is_named(
    covariates: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CountTableError, match=message):
        read(tmp_path, "note,cost_red,m_red,x_red,m_blue,x_blue\nmale,1,5,3,9,2\n", *covariates)


def test_files_the_system_refuses_are_named(tmp_path: Path) -> None:
    with pytest.raises(CountTableError, match="none: there is no such file"):
        read_counts(tmp_path / "none")
    with pytest.raises(CountTableError, match="this is a folder"):
        read_counts(tmp_path)
    with pytest.raises(CountTableError, match="no file can have this name"):
        read_counts("a\0b")
    with pytest.raises(CountTableError, match="it cannot be read"):
        read_counts(tmp_path / ("long" * 1000))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text(WIDE, encoding="utf-8")
    (tmp_path / "secret.csv").chmod(0)
    with pytest.raises(CountTableError, match="no permission"):
        read_counts(tmp_path / "secret.csv")


def test_errors_of_the_system_are_put_in_words() -> None:
    denied = PermissionError(13, "Permission denied")
    assert why_unreadable(denied) == "there is no permission to read it"
    assert why_unreadable(OSError(5, "Input/output error")) == (
        "it cannot be read (Input/output error)"
    )


def test_too_many_groups_are_refused_before_the_rows_are_read(tmp_path: Path) -> None:
    header = ",".join(f"m_{j},x_{j}" for j in range(50_000))
    with pytest.raises(CountTableError, match="50,000 groups or more"):
        read(tmp_path, header + "\n" + "no numbers\n")
    with pytest.raises(CountTableError, match="groups or more, but a table may have 1,000 at most"):
        read(
            tmp_path, "row,group,available,drawn\n" + "".join(f"A,{j},1,1\n" for j in range(20_000))
        )


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("m_a,x_a,m_b,x_b\n" + "5,3,9,2\n" * 200_000, encoding="utf-8")
    calls: list[tuple[int, int]] = []
    read_counts(path, progress=lambda done, total: calls.append((done, total)))
    size = path.stat().st_size
    assert calls[-1] == (size, size)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert len(calls) > 1


def assert_counts_or_a_sentence(folder: Path, content: str | bytes) -> None:
    try:
        table = read(folder, content)
    except CountTableError as error:
        message = str(error)
    else:
        message = ""
        assert table.counts.shape == table.group_sizes.shape
        assert len(table.groups) >= 2
        assert bool(
            (table.counts <= table.group_sizes).all()
            & (table.counts >= 0).all()
            & (table.counts.sum(-1) > 0).all()
        )
    assert "\n" not in message


@given(
    st.binary(max_size=300)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
@example(b"m_a,x_a,m_b,x_b\n\xef\xbb\xbf1,1,1,1")
def test_random_bytes_give_a_table_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    assert_counts_or_a_sentence(tmp_path_factory.getbasetemp(), content)


@given(
    st.sampled_from(
        [
            WIDE,
            LONG,
            WIDE.replace(",", ";"),
            "frequency," + WIDE.replace("\n", "\n1,").removesuffix("1,"),
        ]
    ),
    st.lists(
        st.tuples(
            st.integers(0, 80),
            st.integers(0, 3),
            st.text(",;\t\"'\n\r 0123456789.-eEnaifm_x\0åω", max_size=4),
        ),
        max_size=4,
    ),
)
def test_corrupted_tables_give_valid_counts_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: str, changes: list[tuple[int, int, str]]
) -> None:
    for at, removed, inserted in changes:
        content = content[:at] + inserted + content[at + removed :]
    assert_counts_or_a_sentence(tmp_path_factory.getbasetemp(), content)
