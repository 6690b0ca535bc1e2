"use strict";
// A link of `kernfed web` holds its code behind the `#`: it goes into the form, and out of the address.
const signIn = document.getElementById("sign-in");
function comeIn() {
  if (!signIn || location.hash.length < 2 || location.hash === "#main") return;
  signIn.elements.code.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  signIn.requestSubmit();
}
addEventListener("hashchange", comeIn);
comeIn();
// The part of a page that changes comes as an event. What did not change stays, and so does what has the focus.
const part = document.querySelector("[data-live]");
const line = document.getElementById("line");
function tell(text) {
  line.textContent = text;
  line.hidden = !text;
}
function take(html) {
  const fresh = document.createElement("div");
  fresh.innerHTML = html;
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const address = focused && focused.getAttribute("href");
  for (const element of [...part.children]) if (!fresh.querySelector("#" + CSS.escape(element.id))) element.remove();
  let behind = null;
  for (const element of [...fresh.children]) {
    const before = document.getElementById(element.id);
    if (before && part.contains(before)) {
      if (!before.isEqualNode(element)) before.replaceWith(element);
    } else if (behind) {
      behind.after(element);
    } else {
      part.prepend(element);
    }
    behind = document.getElementById(element.id);
  }
  if (address && !part.contains(document.activeElement)) {
    const again = part.querySelector('[href="' + CSS.escape(address) + '"]');
    if (again) again.focus();
  }
}
if (part) {
  const source = new EventSource(part.dataset.live);
  source.addEventListener("part", (event) => { take(event.data); tell(""); });
  source.addEventListener("over", (event) => { source.close(); tell(event.data); });
  source.addEventListener("open", () => tell(""));
  source.addEventListener("error", () => tell(source.readyState === EventSource.CLOSED
    ? "This page is not live any more: load it again."
    : "The coordinator does not answer. This page goes on by itself when it is back."));
}
