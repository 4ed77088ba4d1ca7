// The tree of modules: keys are split at their dots.

// A module or, if `tensor` is not null, a tensor.
class Item {
  constructor(name, parent, tensor = null) {
    this.name = name;
    this.parent = parent;
    this.tensor = tensor;
    this.items = [];
    this.modules = new Map();
    this.tensors = 0;
    this.parameters = 0;
    this.bytes = 0;
    this.bad = 0;  // Tensors with NaN or infinities.
  }

  // Tied tensors count once.
  count(tensor) {
    this.tensors += 1;
    if (hasBadNumbers(tensor)) this.bad += 1;
    if (tensor.tied !== null) return;
    this.parameters += tensor.elements;
    this.bytes += tensor.bytes;
  }

  add(name, tensor = null) {
    const item = new Item(name, this, tensor);
    this.items.push(item);
    if (tensor === null) this.modules.set(name, item);
    return item;
  }

  // The items from the root, which is left out, to this one.
  get ancestry() {
    return this.parent === null ? [] : [...this.parent.ancestry, this];
  }

  get path() {
    return this.ancestry.map((item) => item.name).join('.');
  }
}

const mostDepth = 32;

// The parts of a key; the last one is the rest of a key that is too deep.
function partsOf(key) {
  const parts = key.split('.');
  return parts.length <= mostDepth ? parts
    : [...parts.slice(0, mostDepth - 1), parts.slice(mostDepth - 1).join('.')];
}

function treeOf(all) {
  const tree = new Item('', null);
  for (const tensor of all) {
    const parts = partsOf(tensor.key);
    let item = tree;
    item.count(tensor);
    for (const part of parts.slice(0, -1)) {
      item = item.modules.get(part) ?? item.add(part);
      item.count(tensor);
    }
    tensor.item = item.add(parts.at(-1), tensor);
    tensor.item.count(tensor);
  }
  return tree;
}

const root = treeOf(tensors);

// The module or tensor with this path; as much of the path as there is.
function itemAt(path) {
  let item = root;
  if (path === '') return item;
  for (const part of partsOf(path)) {
    const next = item.modules.get(part) ?? item.items.find((other) => other.name === part);
    if (next === undefined) break;
    item = next;
  }
  return item;
}

function tensorsIn(item) {
  if (item.parent === null) return tensors;
  return item.tensor !== null ? [item.tensor] : item.items.flatMap(tensorsIn);
}

// Colours: each mode has classes of CSS for tensors, and a legend of
// [class, text, number].

// The part of the model that a tensor belongs to, to this depth. Layers of a list are one part.
function partAt(tensor, depth) {
  const modules = partsOf(tensor.key).slice(0, -1).map((part) => /^\d+$/.test(part) ? '*' : part);
  return (modules.length === 0 ? [tensor.key] : modules.slice(0, depth)).join('.');
}

// The modules with which all of these paths begin: "model.", or "".
function commonModules(paths) {
  if (paths.length < 2) return '';
  const [first, ...others] = paths.map((path) => path.split('.'));
  const differing = first.findIndex((part, i) => others.some((parts) => i + 1 >= parts.length || parts[i] !== part));
  return first.slice(0, Math.min(differing, first.length - 1)).map((part) => part + '.').join('');
}

// At most eight classes for the values of `name`, the largest first; the last one is the rest.
function categoriesOf(all, name) {
  const most = 8;
  const sums = new Map();
  for (const tensor of all) {
    if (tensor.tied !== null) continue;
    sums.set(name(tensor), (sums.get(name(tensor)) ?? 0) + tensor.elements);
  }
  const sorted = [...sums].sort((a, b) => b[1] - a[1]);
  const named = sorted.length <= most ? sorted : sorted.slice(0, most - 1);
  const classes = new Map(named.map(([value], i) => [value, `c${i}`]));
  const common = commonModules(sorted.map(([value]) => value)).length;
  const legend = named.map(([value, sum], i) => [`c${i}`, printable(value.slice(common), 60), shortCount(sum)]);
  const rest = sorted.slice(named.length).reduce((sum, [, count]) => sum + count, 0);
  if (sorted.length > most) legend.push(['c7', `${sorted.length - named.length} others`, shortCount(rest)]);
  return {size: sorted.length, classOf: (tensor) => classes.get(name(tensor)) ?? 'c7', legend};
}

// As deep as eight colours suffice.
function partColours(all) {
  let best = null;
  for (let depth = 1; depth <= 6; ++depth) {
    const categories = categoriesOf(all, (tensor) => partAt(tensor, depth));
    if (best !== null && categories.size > 8) break;
    best = categories;
  }
  return best;
}

// Seven steps between the smallest and the largest, on a logarithmic scale.
function deviationColours(all) {
  const steps = 7;
  const known = all.map((tensor) => tensor.figures?.deviation ?? 0).filter((value) => value > 0);
  const low = Math.log(known.reduce((a, b) => Math.min(a, b), Infinity));
  const high = Math.log(known.reduce((a, b) => Math.max(a, b), 0));
  const stepOf = (value) => high > low
    ? Math.min(steps - 1, Math.floor((Math.log(value) - low) / (high - low) * steps)) : 0;
  const classOf = (tensor) => {
    const value = tensor.figures?.deviation ?? null;
    if (value === null) return 'none';
    return value > 0 ? `s${stepOf(value)}` : 's0';
  };
  const legend = [];
  for (let step = 0; step < steps && known.length > 0; ++step) {
    legend.push([`s${step}`, '', figureText(Math.exp(low + (high - low) * step / steps))]);
  }
  if (all.some((tensor) => classOf(tensor) === 'none')) legend.push(['none', '', 'no figures']);
  return {classOf, legend};
}

const colourings = {
  part: {title: 'Part', of: partColours},
  dtype: {title: 'Dtype', of: (all) => categoriesOf(all, (tensor) => tensor.dtype)},
  deviation: {title: 'Deviation', of: deviationColours},
};
if (!data.has_figures) delete colourings.deviation;
