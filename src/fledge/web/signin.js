// Signing in: the token of the gateway, where to find it, and what fledge promises.

import { copyButton, el, icon, setTitle, write } from "./dom.js";
import { signIn, Unauthorised } from "./gateway.js";

const WHERE = "cat ~/.fledge/gateway.token";
const PROMISES = [
  ["branch", "Agents that start agents", "as deep as you allow"],
  ["check", "Every result arrives once", "also after a crash"],
  ["hand", "Nothing risky without you", "calls and plans wait for your yes"],
];

/** Show the form in `root`. `why`: why the person must sign in again, or empty. `done` is called after the sign-in. */
export function showSignIn(root, why, done) {
  const token = el("input", { id: "token", class: "field", type: "password", autocomplete: "off", spellcheck: "false", required: true, placeholder: "paste it here", "aria-describedby": "where signin-error" });
  const error = el("p", { id: "signin-error", class: "error", role: "alert" }, why);
  const submit = async (event) => {
    event.preventDefault();
    write(error, "");
    try {
      await signIn(token.value.trim());
    } catch (problem) {
      write(error, problem instanceof Unauthorised ? "That is not the token of this gateway." : `${problem.message}.`);
      token.select();
      return;
    }
    await done();
  };
  root.replaceChildren(el("main", { class: "signin", id: "main" },
    el("div", { class: "signbox" },
      el("img", { src: "/page/icon.svg", alt: "", width: 44, height: 44 }),
      el("h1", null, "Sign in to fledge"),
      el("p", { class: "soft" }, "This page belongs to the gateway at ", el("b", null, location.host), "."),
      el("form", { on: { submit } },
        el("label", { for: "token" }, "Token of this gateway"),
        el("div", { class: "tokenbox" }, icon("key"), token),
        error,
        el("button", { class: "btn primary wide", type: "submit" }, el("span", null, "Sign in"))),
      el("div", { class: "where", id: "where" },
        el("p", null, "Where is it? On the machine that runs the gateway:"),
        el("div", { class: "cmd" }, el("code", null, WHERE), copyButton(WHERE, "Copy the command")),
        el("p", { class: "soft" }, "Or let ", el("code", null, "fledge page"), " open this page already signed in. Another state folder has its own file ", el("code", null, "gateway.token"), ". This browser stays signed in until you sign out, or do not use it for 30 days; the token is not kept."))),
    el("ul", { class: "promise" }, PROMISES.map(([ico, promise, more]) =>
      el("li", null, icon(ico, 18), el("div", null, el("b", null, promise), el("span", { class: "soft" }, more)))))));
  setTitle("Sign in · fledge");
  token.focus();
}
