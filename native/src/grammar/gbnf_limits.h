// What a grammar may ask of llama.cpp, which follows groups and rules recursively and writes repetitions out.
#pragma once

#include <string>

struct llama_grammar_parser;

namespace eliza {

// Before it is parsed: groups that are nested too deep, repetitions that come to too much or end before they begin.
// Throws Error. What is no GBNF is left for the parser to refuse.
void check_gbnf_text(const std::string & gbnf);

// After that: rules that are missing, too many, that begin with themselves, or that begin with one another in too many
// ways or too deep. Throws Error that names one.
void check_gbnf_rules(const llama_grammar_parser & parser);

}  // namespace eliza
