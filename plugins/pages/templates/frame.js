// Airflow shows this page in a frame that may not open Airflow's own pages in the whole window, nor
// others in a new one. Airflow's window may: its router listens to the window's history, and a link
// that is put into it opens like its own. Without scripts such links do nothing.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[target]");
  if (!link || window.parent === window || event.ctrlKey || event.metaKey || event.button) return;
  event.preventDefault();
  if (link.target === "_top") {
    window.parent.history.pushState(null, "", link.href);
    window.parent.dispatchEvent(new PopStateEvent("popstate"));
    return;
  }
  const outside = window.parent.document.createElement("a");
  Object.assign(outside, { href: link.href, target: link.target, rel: "noopener" });
  outside.click();
});
