#!/bin/sh
# The first hour of a Python developer with a CSV file: install the wheel, ask about every row, measure, use Python.
#
#     tests/release/csv.sh FOLDER    FOLDER/wheels has the wheels of eliza-ffi and of its dependencies
set -eu
check=$(realpath "$(dirname "$0")")/check_installed.py
wheels=$(realpath "$1")/wheels
cd "$(mktemp -d)"
python3 -m venv venv
PATH=$PWD/venv/bin:$PATH
pip install --quiet --disable-pip-version-check --no-index --find-links "$wheels" eliza-ffi
python "$check"

cat > messages.csv << 'CSV'
id,body,team
1,"I was charged twice for order 4711, please check the invoice.",billing
2,My parcel has not arrived and tracking shows nothing new.,delivery
3,I forgot my password and cannot sign in.,login
4,The app crashes when I open my photos.,bugs
CSV
eliza-ffi decide messages.csv --column body --ask "Which team should read this?" \
    --option billing --option delivery --option login --option bugs --name team --keep id --output teams.csv
cat > questions.json << 'JSON'
{"team": {"type": "choice", "instructions": "Which team should read this?",
          "choices": ["billing", "delivery", "login", "bugs"]}}
JSON
eliza-ffi evaluate messages.csv --column body --questions questions.json

cat > route.py << 'PYTHON'
import csv

from eliza_ffi import Model

TEAMS = ["billing", "delivery", "login", "bugs"]

with open("teams.csv", encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
assert [row["id"] for row in rows] == ["1", "2", "3", "4"], rows
assert {row["team"] for row in rows} <= set(TEAMS), rows
with Model() as model:
    result = model.choose("The invoice shows the wrong amount. The team for this is ", TEAMS)
    assert result.value in TEAMS and 0 < result.probability <= 1, result
    print(result.value, f"{result.probability:.2f}")
    print(model.fill("An order of tea: ", {"type": "object", "properties": {"size": {"enum": ["small", "large"]}},
                                           "required": ["size"]}).value)
PYTHON
python route.py
