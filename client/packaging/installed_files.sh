# SPDX-License-Identifier: Apache-2.0

# The list of what install.sh has put under a prefix, which lies in the prefix itself. To be sourced. Its lines are paths below the prefix:
# of files and links, and, with a / at the end, of folders that were not there before; the prefix itself is "/".
readonly installed_list=share/ronda/installed

# Removes the files of the list OLD below ROOT that the list NEW lacks, and the folders, where nothing else is in them. The lists are texts.
remove_listed() {  # remove_listed ROOT OLD NEW
  local gone path
  gone=$(grep -vxF -f <(echo "$3") <<< "$2" || true)
  while IFS= read -r path; do
    [[ -n $path && $path != */ ]] || continue
    rm -f "$1/$path"
    # What Python has made of a module.
    if [[ $path == *.py ]]; then rm -f "$1/$(dirname "$path")/__pycache__/$(basename "$path" .py)".*.pyc; fi
  done <<< "$gone"
  while IFS= read -r path; do
    rmdir "$1/$path/__pycache__" "$1/$path" 2> /dev/null || true
  done < <(grep '/$' <<< "$gone" | LC_ALL=C sort -r)
}
