// The answers that the library makes up for a lost RPC server. ggml's client ends the process if an answer does not
// have the expected length.

#include "engine/model/rpc_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace eliza::test {
namespace {

// The request as the client sends it, in three parts.
RpcRequest request(uint8_t command, size_t size_before, const std::vector<uint64_t> & numbers) {
    std::string rest(size_before, 'x');
    rest.append(reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(uint64_t));
    const uint64_t size = rest.size();
    RpcRequest made;
    made.add(&command, 1);
    made.add(&size, sizeof(size));
    made.add(rest.data(), rest.size());
    return made;
}

uint64_t number_at(const std::vector<char> & answer, size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, answer.data() + at, sizeof(value));
    return value;
}

std::vector<char> made_up(const RpcRequest & request) {
    std::vector<char> answer(request.answer_size(), 'x');
    request.make_up(answer.data(), answer.size());
    return answer;
}

TEST(RpcRequest, ATensorHasTheRequestedSize) {
    constexpr size_t tensor = 296;
    EXPECT_EQ(request(8, tensor, {/*offset=*/7, /*size=*/1000}).answer_size(), 1000u);
    EXPECT_EQ(request(19, tensor, {/*offset=*/7, /*size=*/100, /*copies=*/6, /*stride=*/4096}).answer_size(), 600u);
    EXPECT_EQ(made_up(request(8, tensor, {0, 3})), std::vector<char>(3, '\0'));
}

TEST(RpcRequest, NumbersHaveTheExpectedSize) {
    EXPECT_EQ(request(15, 0, {}).answer_size(), 4u);   // number of devices
    EXPECT_EQ(request(11, 4, {}).answer_size(), 16u);  // memory of a device
    EXPECT_EQ(request(13, 4, {}).answer_size(), 8u);   // size of a tensor
    EXPECT_EQ(request(7, 296, {0, 1}).answer_size(), 1u);
    EXPECT_EQ(request(9, 592, {}).answer_size(), 1u);
    EXPECT_EQ(request(20, 80, {}).answer_size(), 1u);
}

TEST(RpcRequest, EveryBufferIsGrantedAtTheRequestedSize) {
    const std::vector<char> answer = made_up(request(0, 4, {12345}));
    ASSERT_EQ(answer.size(), 16u);
    EXPECT_NE(number_at(answer, 0), 0u);
    EXPECT_EQ(number_at(answer, 8), 12345u);
    EXPECT_NE(number_at(made_up(request(3, 0, {1})), 0), 0u);       // it has an address
    EXPECT_EQ(number_at(made_up(request(1, 4, {})), 0) % 128, 0u);  // which is aligned
}

TEST(RpcRequest, ServersAreReportedAsNotConnected) {
    EXPECT_EQ(made_up(request(20, 80, {})), std::vector<char>(1, '\0'));
}

TEST(RpcRequest, TheHelloAnswerHasThisVersion) {
    const RpcRequest hello = request(14, 24, {});
    EXPECT_TRUE(hello.is_hello());
    const std::vector<char> answer = made_up(hello);
    ASSERT_EQ(answer.size(), 28u);
    EXPECT_EQ(answer[0], RPC_PROTO_MAJOR_VERSION);
}

TEST(RpcRequest, OneRequestFollowsAnother) {
    RpcRequest one = request(8, 0, {0, 1000});
    one.end();
    const uint8_t command = 15;
    const uint64_t size = 0;
    one.add(&command, 1);
    one.add(&size, sizeof(size));
    one.add(nullptr, 0);
    EXPECT_EQ(one.answer_size(), 4u);
}

}  // namespace
}  // namespace eliza::test
