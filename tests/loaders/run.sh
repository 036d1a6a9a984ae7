# The loaders' tests, skipped (77) without Python. usage: run.sh PYTHON
if ! command -v "$1" >/dev/null; then
  echo "SKIPPED: the loaders' tests need Python: there is no $1"
  exit 77
fi
exec "$1" "$(dirname "$0")/run.py"
