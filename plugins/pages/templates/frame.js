// Airflow shows this page in a frame that may not open Airflow's own pages in the whole window.
// Its router can: it listens to the window's history. Without scripts such links do nothing.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[target="_top"]');
  if (!link || window.parent === window || event.ctrlKey || event.metaKey || event.button) return;
  event.preventDefault();
  window.parent.history.pushState(null, "", link.href);
  window.parent.dispatchEvent(new PopStateEvent("popstate"));
});
