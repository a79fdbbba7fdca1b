// What a grammar may ask of llama.cpp's parser, which follows groups recursively and writes repetitions out, and of us.
#pragma once

#include <string>

struct llama_grammar_parser;

namespace eliza {

// Before it is parsed: groups that are nested too deep, repetitions that come to too much or end before they begin.
// Throws Error. What is no GBNF is left for the parser to refuse.
void check_gbnf_text(const std::string & gbnf);

// After that: rules that are missing, too many, or that begin with themselves. Throws Error that names one.
void check_gbnf_rules(const llama_grammar_parser & parser);

}  // namespace eliza
