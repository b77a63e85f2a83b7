const tell = (what) => fetch("/told-" + encodeURIComponent(what));
addEventListener("load", async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const { violations } = await axe.run(document, { runOnly: tags });
  for (const one of violations)
    await tell("violation " + one.id + " " + one.nodes.length + " " + one.nodes[0].html.slice(0, 200));
  tell("done");
});
