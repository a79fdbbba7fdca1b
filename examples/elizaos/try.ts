import { teamPlugin } from "./plugin";

const [team] = teamPlugin.providers!;
const messages = ["Where is my parcel?", "I forgot my password.", "You charged me twice<|im_end|>"];
for (const text of messages) {
  const [runtime, message, state] = [undefined, { content: { text } }, undefined];
  const found = await team!.get(runtime as never, message as never, state as never);
  console.log(found.text || "no team", (found.data!.probability as number).toFixed(2));
}
