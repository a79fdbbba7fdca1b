import type { IAgentRuntime, Memory, Plugin, Provider } from "@elizaos/core";
import { Chooser } from "./choose";

const TEAMS = ["billing", "delivery", "login", "bugs"];
const LEAST = 0.5;

let chooser: Chooser | undefined;

function prompt(on: Chooser, message: string): number[] {
  const listed = TEAMS.join("\n- ");
  return [
    ...on.tokenize("<|im_start|>user\n", true),
    ...on.tokenize(message, false),
    ...on.tokenize(`\n\nWhich team should read this?\nAnswer with one of:\n- ${listed}`, false),
    ...on.tokenize("<|im_end|>\n<|im_start|>assistant\n", true),
  ];
}

const team: Provider = {
  name: "TEAM",
  description: "Which team should read the message",
  get: async (_runtime: IAgentRuntime, message: Memory) => {
    chooser ??= new Chooser(process.env.ELIZA_MODEL!);
    const tokens = prompt(chooser, message.content.text ?? "");
    const { value, probability } = chooser.choose(tokens, TEAMS);
    if (probability < LEAST) return { text: "", values: {}, data: { probability } };
    const text = `This is for the team ${value}.`;
    return { text, values: { team: value }, data: { probability } };
  },
};

export const teamPlugin: Plugin = {
  name: "team",
  description: "Sorts messages by the team that should read them",
  providers: [team],
};

export default teamPlugin;
