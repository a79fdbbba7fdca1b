#include "fuzz_target.h"
#include "sampling/sampling_params.h"

// Accepted settings are accepted again, on top of themselves.
void eliza::fuzz::run(std::string_view input) {
    const SamplingParams params = parse_sampling({}, input);
    check_together(params);
    check_together(parse_sampling(params, input));
}
