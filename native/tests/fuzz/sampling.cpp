#include "fuzz_target.h"
#include "sampling/sampling_params.h"

// Accepted settings can be applied a second time to their own result.
void eliza::fuzz::run(std::string_view input) {
    const SamplingParams params = parse_sampling({}, input);
    check_together(params);
    check_together(parse_sampling(params, input));
}
