// A virtual DOM of one page: h describes an element, patch makes a container show a list of such
// descriptions and changes only the differences, so that focus, selection and scroll positions stay
// when live data arrive. Text always becomes a text node: no string is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const asProperty = new Set(["value", "checked", "disabled", "selected", "open", "indeterminate"]);

// h describes an element. Children may be descriptions, strings, numbers, arrays, and null or false
// for nothing. The prop "key" identifies a child among its siblings; "ref" is called with the
// element once it exists; "on..." are handlers; "style" is an object of CSS properties.
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flat(children, []), el: null };
}

function flat(list, out) {
  for (const c of list) {
    if (Array.isArray(c)) flat(c, out);
    else if (c === null || c === undefined || c === false || c === true) continue;
    else if (typeof c === "object") out.push(c);
    else out.push({ text: String(c), el: null });
  }
  return out;
}

// patch makes container show the described children.
export function patch(container, children) {
  const next = flat([children], []);
  reconcile(container, container.shown ?? [], next, container.namespaceURI === SVG);
  container.shown = next;
}

function sameKind(a, b) {
  return a.tag === b.tag && (a.tag === undefined || a.props.key === b.props.key);
}

function reconcile(parent, before, after, inSVG) {
  const keyed = new Map();
  for (const old of before) if (old.props?.key !== undefined) keyed.set(old.props.key, old);
  const used = new Set();
  let cursor = 0;
  for (const node of after) {
    let old = null;
    const key = node.props?.key;
    if (key !== undefined) {
      const candidate = keyed.get(key);
      if (candidate && !used.has(candidate) && candidate.tag === node.tag) old = candidate;
    } else {
      // The next one of that kind; those between have gone.
      let i = cursor;
      while (i < before.length && !(sameKind(before[i], node) && !used.has(before[i]))) i++;
      if (i < before.length) { old = before[i]; cursor = i + 1; }
    }
    if (old) used.add(old);
    update(old, node, inSVG);
  }
  for (const old of before) if (!used.has(old)) old.el.remove();
  // Elements that stay in their order are not moved: moving one would take the focus from it.
  let at = parent.firstChild;
  for (const node of after) {
    if (node.el === at) at = at.nextSibling;
    else parent.insertBefore(node.el, at);
  }
}

function update(old, node, inSVG) {
  if (node.tag === undefined) {
    node.el = old ? old.el : document.createTextNode(node.text);
    if (old && old.text !== node.text) node.el.data = node.text;
    return;
  }
  const svg = inSVG || node.tag === "svg";
  node.el = old ? old.el : svg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  const was = old ? old.props : {};
  // A select has its value only once its options are there.
  reconcile(node.el, old ? old.children : [], node.children, svg && node.tag !== "foreignObject");
  for (const name in was) if (!(name in node.props)) setProp(node.el, name, null, was[name]);
  for (const name in node.props) setProp(node.el, name, node.props[name], was[name]);
  if (!old && node.props.ref) node.props.ref(node.el);
}

function setProp(el, name, value, was) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on")) {
    el[name] = value ?? null;
  } else if (name === "style") {
    for (const p in was ?? {}) if (!value || !(p in value)) el.style.removeProperty(p);
    for (const p in value ?? {}) if (!was || was[p] !== value[p]) el.style.setProperty(p, value[p]);
  } else if (asProperty.has(name)) {
    // A field in which a person is typing keeps its text.
    if (value === was || (name === "value" && el.tagName === "INPUT" && el === document.activeElement)) return;
    el[name] = value ?? (name === "value" ? "" : false);
  } else if (value === was) {
    return;
  } else if (value === null || value === undefined || value === false) {
    el.removeAttribute(name);
  } else {
    el.setAttribute(name, value === true ? "" : String(value));
  }
}
