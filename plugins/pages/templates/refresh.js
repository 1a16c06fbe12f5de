// Loads the page anew while something runs. It stays as it is while somebody uses it: a box that was
// ticked, a word that is typed or a part that is opened would be lost.
const seconds = Number(document.body.dataset.refresh);
const used = () =>
  document.hidden ||
  document.querySelector("details[open]") ||
  [...document.querySelectorAll("input[type=checkbox]")].some((box) => box.checked !== box.defaultChecked) ||
  String(window.getSelection()) ||
  [...document.querySelectorAll("input[type=search], input[type=date]")].some((field) => field.value !== field.defaultValue);
if (seconds) setInterval(() => used() || window.location.reload(), seconds * 1000);
