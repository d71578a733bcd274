# SPDX-License-Identifier: Apache-2.0

# Sourced by <name>/environment.sh. Makes a virtual environment in ~/.cache/ronda with one version of a project on PyPI.
# The calling script sets `name`, `project` as PyPI spells it, and `module` if programs do not import it as `name`. Its
# make_environment() installs into $folder, whose Python is $python.

readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/ronda

say() {
  echo "$name: $*" >&2
}

fail() {
  say "$*"
  exit 1
}

# Makes a virtual environment in folder $1, in place of an existing one.
make_venv() {
  rm -rf "$1"
  mkdir -p "$(dirname "$1")"
  "${PYTHON:-python3}" -m venv "$1" >&2 || fail "${PYTHON:-python3} cannot make a virtual environment in $1"
}

# Prints the newest version that pip offers this Python. Fails if pip does not answer.
offered() {
  local answer
  [[ -x $cache/pip/bin/pip ]] || make_venv "$cache/pip"
  answer=$("$cache/pip/bin/python" -m pip --retries 1 --timeout 30 index versions "$project" 2> /dev/null) || return 1
  sed -nE "1s/^$project \\((.+)\\)\$/\\1/p" <<< "$answer" | grep .
}

# Prints the newest version of which this machine has a complete environment. Does not use pip.
kept() {
  local marker
  for marker in "$cache/$name"-*/complete; do
    [[ ! -e $marker ]] || sed -E "s|.*/$name-([^/]+)/complete|\\1|" <<< "$marker"
  done | sort -V | tail -n 1 | grep .
}

newest() {
  if offered; then return; fi
  kept || fail "the newest version cannot be had: pip finds no $project (is there a network?), and none is in $cache"
  say "pip finds no $project (is there a network?): the newest in $cache is taken"
}

install() {
  local reason
  "$python" -m pip install --quiet "$@" >&2 2> "$folder/errors" && return
  cat "$folder/errors" >&2
  reason=$(sed -n 's/^ERROR: //p' "$folder/errors" | tail -n 1)
  rm -rf "$folder"
  fail "$version cannot be had: ${reason:-pip fails to install $*}"
}

# Installs PyPI's torch as requirement $1, with the requirements from $2 on. This torch is built for CUDA, but needs
# neither CUDA's packages nor a GPU here (see tools/torch/stand_ins.py).
install_torch() {
  local wanted
  install --no-deps "$1"
  mapfile -t wanted < <("$python" tools/torch/requirements.py torch)
  install "${wanted[@]}" "${@:2}"
  "$python" tools/torch/stand_ins.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" >&2 ||
    fail "$version cannot be had: stand_ins.py fails"
}

# Prints the path of a Python that has version $1 of the project, or the newest that pip offers ("newest"). If no such
# version can be had, the last line of standard error says why, and the script ends with exit code 1.
print_python() {
  version=$1
  if [[ $version == newest ]]; then version=$(newest); fi
  [[ $version =~ ^[0-9][0-9A-Za-z.+]*$ ]] || fail "'$version' is no version: give one as 2.6.0, or newest"
  readonly folder=$cache/$name-$version
  readonly python=$folder/bin/python

  mkdir -p "$cache"
  exec 9> "$cache/$name.lock"  # if two scripts need a version, only one makes it
  flock 9
  if [[ ! -e $folder/complete ]]; then
    say "$version is installed in $folder; this takes minutes"
    make_venv "$folder"
    make_environment
    "$python" -c "import ${module:-$name}" || fail "$version cannot be had: Python fails to import it"
    touch "$folder/complete"
  fi
  echo "$python"
}
