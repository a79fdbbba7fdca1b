#!/bin/sh
# The first hour of a backend developer: serve a model, and use it with OpenAI's client and over plain HTTP.
#
#     tests/release/openai_client.sh FOLDER    FOLDER/wheels has the wheels of eliza-ffi[serve] and of openai
set -eu
wheels=$(realpath "$1")/wheels
cd "$(mktemp -d)"
python3 -m venv venv
PATH=$PWD/venv/bin:$PATH
pip install --quiet --disable-pip-version-check --no-index --find-links "$wheels" 'eliza-ffi[serve]' openai
eliza-ffi serve --port 0 > served.txt &
server=$!
trap 'kill "$server"' EXIT
until grep -q served served.txt; do
    kill -0 "$server"  # ends this script if the server has failed
    sleep 0.1
done

cat > client.py << 'PYTHON'
import json
import sys
import urllib.request

from openai import OpenAI

address = sys.argv[1]
client = OpenAI(base_url=f"{address}v1", api_key="any")
messages = [{"role": "user", "content": "The app crashes when I open it. Which team should read this?"}]
teams = ["billing", "delivery", "login", "bugs"]

answer = client.chat.completions.create(model="any", messages=messages, extra_body={"guided_choice": teams}).choices[0]
assert answer.message.content in teams, answer
print("choice:", answer.message.content, f"{answer.probabilities[answer.message.content]:.2f}")

schema = {"type": "object", "properties": {"team": {"enum": teams}}, "required": ["team"], "additionalProperties": False}
response_format = {"type": "json_schema", "json_schema": {"name": "routing", "schema": schema, "strict": True}}
answer = client.chat.completions.create(model="any", messages=messages, response_format=response_format).choices[0]
assert json.loads(answer.message.content)["team"] in teams, answer
print("structured:", answer.message.content)

stream = client.chat.completions.create(model="any", messages=messages, max_tokens=8, stream=True)
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
assert text
print("streamed:", text)

question = {"type": "choice", "name": "team", "instructions": "Which team should read this?", "choices": teams}
body = {"model": "any", "input": messages[0]["content"], "questions": [question]}
request = urllib.request.Request(f"{address}v1/decisions", json.dumps(body).encode(), {"Content-Type": "application/json"})
with urllib.request.urlopen(request) as response:
    print("decision:", json.load(response))
PYTHON
python client.py "$(sed -n 's/.* served at //p' served.txt)"
kill "$server"
wait "$server"  # with exit code 0 after SIGTERM
trap - EXIT
