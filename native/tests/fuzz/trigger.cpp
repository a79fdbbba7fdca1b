#include "fuzz_target.h"
#include "grammar/trigger_pattern.h"

// A pattern, a line break and the text. The position of the match does not depend on how the text is split into pieces,
// except that "$" and "\b" match the end of a piece.
void eliza::fuzz::run(std::string_view input) {
    const size_t line = input.find('\n');
    const std::string_view pattern = input.substr(0, line);
    const std::string_view text = line == std::string_view::npos ? "" : input.substr(line + 1, 2000);
    const auto compiled = std::make_shared<const TriggerPattern>(pattern);
    TriggerSearch by_byte(compiled), whole(compiled);
    std::optional<size_t> found;
    for (size_t i = 0; i < text.size() && !found; ++i) found = by_byte.feed(text.substr(i, 1));
    const std::optional<size_t> expected = whole.feed(text);
    require(!found || *found <= text.size());
    require(!expected || *expected <= text.size());
    if (pattern.find_first_of("$\\") == std::string_view::npos) {
        require(text.empty() || found.has_value() == expected.has_value());
    }
}
