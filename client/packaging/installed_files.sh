# SPDX-License-Identifier: Apache-2.0

# Other scripts source this file. It names the list of what install.sh has installed under a prefix. The list is under
# the same prefix. Each line is a path below the prefix, of a file, a link, or a folder that install.sh has made. The
# path of a folder ends with /, and the prefix itself is "/".
readonly installed_list=share/ronda/installed

# Removes the files below ROOT that are in the list OLD and not in the list NEW. Also removes such folders if they are
# empty. Both arguments are the texts of the lists, and not paths.
remove_listed() {  # remove_listed ROOT OLD NEW
  local gone path
  gone=$(grep -vxF -f <(echo "$3") <<< "$2" || true)
  while IFS= read -r path; do
    [[ -n $path && $path != */ ]] || continue
    rm -f "$1/$path"
    # The bytecode that Python has compiled from a module.
    if [[ $path == *.py ]]; then rm -f "$1/$(dirname "$path")/__pycache__/$(basename "$path" .py)".*.pyc; fi
  done <<< "$gone"
  while IFS= read -r path; do
    rmdir "$1/$path/__pycache__" "$1/$path" 2> /dev/null || true
  done < <(grep '/$' <<< "$gone" | LC_ALL=C sort -r)
}
