// Limits for a grammar. They protect llama.cpp's parser, which is recursive and writes repetitions out, and our own
// automaton.
#pragma once

#include <string>

struct llama_grammar_parser;

namespace eliza {

// Checks the text before it is parsed. Throws an Error if it is not valid UTF-8, groups are nested too deep, or a
// repetition is too large or has a maximum below its minimum. Other syntax errors are left to the parser.
void check_gbnf_text(const std::string & gbnf);

// Checks the parsed rules. Throws an Error that names a rule that is missing or begins with itself, or if there are too
// many.
void check_gbnf_rules(const llama_grammar_parser & parser);

}  // namespace eliza
