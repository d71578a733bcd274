# SPDX-License-Identifier: Apache-2.0

"""Tests the lists that tools/bindings generates from the headers of the C ABI."""

import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

from ronda import _native, _rows, types

_TOOLS = pathlib.Path("tools/bindings").resolve()
sys.path.insert(0, str(_TOOLS))

import bindings  # noqa: E402
import c_headers  # noqa: E402

_HEADER = """
    typedef enum ronda_dtype {
      RONDA_UINT8 = 0, /* typedef enum no { RONDA_NONE = 7 } */
      RONDA_BOOL = 8
    } ronda_dtype;

    #define RONDA_ROTATE_ARGS_INIT \\
      { sizeof(ronda_rotate_args), 0 }

    typedef struct ronda_rotate_args {
      size_t struct_size;
      ronda_tensor tensor;
      const int64_t* rows;
      int row_count; /* entries of rows; int comment; */
      int distance;
      const void* input;
      ronda_call_options call;
      void* output;
      size_t output_bytes;
    } ronda_rotate_args;

    ronda_status ronda_rotate_async(const ronda_rotate_args* args, ronda_handle* handle);
    ronda_status ronda_grouped_rotate_async(const ronda_rotate_args* args, size_t count,
                                            const char* group, ronda_handle* handles);
    ronda_status ronda_barrier(ronda_process_set process_set);
    """


def _parsed(text: str) -> c_headers.Headers:
    return c_headers.parse(textwrap.dedent(text))


class HeadersTest(unittest.TestCase):
    def test_comments_and_macros_declare_nothing(self):
        headers = _parsed(_HEADER)
        self.assertEqual(headers.enums, {"ronda_dtype": {"RONDA_UINT8": 0, "RONDA_BOOL": 8}})
        self.assertEqual(list(headers.structs), ["ronda_rotate_args"])
        fields = headers.structs["ronda_rotate_args"]
        self.assertIn(c_headers.Field("const void*", "input"), fields)
        self.assertIn(c_headers.Field("int", "row_count"), fields)
        self.assertEqual(len(fields), 9)
        self.assertEqual(
            headers.functions["ronda_rotate_async"], ("const ronda_rotate_args*", "ronda_handle*")
        )

    def test_an_enumerator_needs_a_number(self):
        with self.assertRaisesRegex(
            c_headers.BindingsError, "ronda_dtype: 'A'.*write 'A = NUMBER'"
        ):
            _parsed("typedef enum ronda_dtype { A } ronda_dtype;")


class OperationsTest(unittest.TestCase):
    def test_a_function_decides_in_which_lists_an_operation_is(self):
        headers = _parsed(_HEADER)
        self.assertEqual(bindings.operations(headers), ["rotate"])
        self.assertEqual(bindings.operations(headers, "RONDA_GROUPED_OPERATIONS"), ["rotate"])
        self.assertEqual(bindings.operations(headers, "RONDA_BLOCKING_OPERATIONS"), [])
        self.assertIn("ROW(rotate, ROTATE)", bindings.lists_header(headers))

    def test_arguments_are_memory_then_what_is_required_then_options(self):
        found = bindings.arguments(_parsed(_HEADER), "rotate")
        self.assertEqual(
            " ".join(each.name for each in found),
            "name dtype shape input output output_bytes keep distance rows"
            " process_set deadline_s stream",
        )
        self.assertEqual(
            [each.name for each in found if each.default is not None],
            ["process_set", "deadline_s", "stream"],
        )
        rows = found[8]
        self.assertEqual(
            rows.field("ronda_rotate_args"), "ARRAY(ronda_rotate_args, kNumbers, rows, row_count)"
        )

    def test_a_field_of_an_unknown_type_is_named_with_the_remedy(self):
        for declaration in ("short distance", "int distance, other", "char distance[8]"):
            headers = _parsed(_HEADER.replace("int distance", declaration))
            with self.assertRaisesRegex(
                bindings.BindingsError, "ronda_rotate_args: .*distance.*: add the type to _TYPES"
            ):
                bindings.arguments(headers, "rotate")

    def test_the_last_field_is_named_as_well(self):
        headers = _parsed(
            _HEADER.replace("} ronda_rotate_args;", "  int last[8];\n} ronda_rotate_args;")
        )
        with self.assertRaisesRegex(bindings.BindingsError, "ronda_rotate_args: .*last"):
            bindings.arguments(headers, "rotate")

    def test_a_stub_without_its_marks_is_refused(self):
        with self.assertRaisesRegex(bindings.BindingsError, "_native.pyi lacks the line.*restore"):
            bindings.stub(_parsed(_HEADER), "import typing\n")

    def test_the_program_prints_its_error(self):
        with tempfile.NamedTemporaryFile("w", suffix=".h") as header:
            header.write(textwrap.dedent(_HEADER).replace("int distance", "short distance"))
            header.flush()
            command = [sys.executable, str(_TOOLS / "bindings.py"), "fields", header.name]
            done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bindings: ronda_rotate_args: ", done.stderr)
        self.assertEqual(done.stdout, "")


class CommittedFilesTest(unittest.TestCase):
    def test_they_agree_with_the_headers(self):
        root = pathlib.Path.cwd()
        for path, text in bindings.python_files(root).items():
            with self.subTest(path):
                self.assertEqual((root / path).read_text(), text, "run make bindings")


class ModuleTest(unittest.TestCase):
    """Tests that the compiled lists agree with the headers."""

    def setUp(self):
        self.headers = c_headers.read(*map(pathlib.Path, bindings.HEADERS))

    def test_the_module_has_every_operation(self):
        for operation in bindings.operations(self.headers):
            required = [
                each for each in bindings.arguments(self.headers, operation) if not each.default
            ]
            with self.assertRaisesRegex(
                TypeError, rf"{operation}_async\(\) takes {len(required)} to \d+ arguments, not 0"
            ):
                getattr(_native, f"{operation}_async")()
        for operation in bindings.operations(self.headers, "RONDA_GROUPED_OPERATIONS"):
            self.assertTrue(hasattr(_native, f"grouped_{operation}_async"))

    def test_a_row_has_the_order_of_the_module(self):
        names = [each.name for each in bindings.arguments(self.headers, "allreduce")]
        self.assertEqual(list(_rows.allreduce(**{name: name for name in names})), names)

    def test_the_list_of_dtypes_has_every_one_with_its_bytes(self):
        rows = re.findall(r"ROW\((\w+), (\w+), (\w+), (\d)\)", bindings.fields_header(self.headers))
        self.assertEqual([row[2] for row in rows], [each.name for each in types.DType])
        self.assertIn(("bfloat16", "Bfloat16", "BFLOAT16", "2"), rows)
        self.assertIn(("bool", "Bool", "BOOL", "1"), rows)

    def test_enums_have_the_numbers_of_the_header(self):
        self.assertEqual(
            {f"RONDA_{each.name}": each.value for each in types.DType},
            self.headers.enums["ronda_dtype"],
        )


if __name__ == "__main__":
    unittest.main()
