// The treemap of a module, with the modules in it as frames.
// Source: Bruls, Huizing and van Wijk, "Squarified Treemaps", 2000.

const mostTiles = 4000;  // A browser draws so many without a delay.
const leastArea = 60;    // The area of a tile, on average, in a module that is drawn as a frame.
const head = 18;         // The height of the title of a frame.

// Places `items`, sorted by descending parameters, in a box. Calls place(item, box) for each.
function squarify(items, box, place) {
  let {x, y, width, height} = box;
  let left = items.reduce((sum, item) => sum + item.parameters, 0);
  for (let begin = 0; begin < items.length && left > 0;) {
    const scale = width * height / left;
    const side = Math.min(width, height);
    // The worst ratio of the sides in a row of `sum` with items from `large` to `small`.
    const worst = (sum, large, small) => {
      const area = sum * scale;
      return Math.max(side * side * large * scale / (area * area), area * area / (side * side * small * scale));
    };
    let sum = items[begin].parameters, end = begin + 1;
    let ratio = worst(sum, items[begin].parameters, items[begin].parameters);
    for (; end < items.length; ++end) {
      const next = worst(sum + items[end].parameters, items[begin].parameters, items[end].parameters);
      if (next > ratio) break;
      ratio = next;
      sum += items[end].parameters;
    }
    const depth = sum * scale / side;
    const isColumn = width >= height;
    let along = isColumn ? y : x;
    for (const item of items.slice(begin, end)) {
      const length = item.parameters * scale / depth;
      place(item, isColumn ? {x, y: along, width: depth, height: length}
        : {x: along, y, width: length, height: depth});
      along += length;
    }
    if (isColumn) [x, width] = [x + depth, width - depth];
    else [y, height] = [y + depth, height - depth];
    left -= sum;
    begin = end;
  }
}

function itemsWithParameters(module) {
  return module.items.filter((item) => item.parameters > 0);
}

// Returns the items of a module that are drawn: those with parameters, the largest first. A module of one item is
// drawn as that item, with both names.
function drawnItems(module) {
  return itemsWithParameters(module).map((item) => {
    let name = item.name;
    for (let items = itemsWithParameters(item); items.length === 1; items = itemsWithParameters(item)) {
      [item] = items;
      name += '.' + item.name;
    }
    return {item, name, parameters: item.parameters};
  }).sort((a, b) => b.parameters - a.parameters || compareText(a.name, b.name));
}

// As much of `text` as fits; empty if that is next to nothing. Characters are about this wide.
function fitting(text, width) {
  const count = Math.floor(width / 6.4);
  const whole = printable(text, 80);
  if (whole.length <= count) return whole;
  return count < 4 ? '' : whole.slice(0, count - 1) + '…';
}

// Describes a tile for screen readers and for the tip.
function describe(item) {
  const share = `${shortCount(item.parameters)} parameters, ${shareText(item.parameters, root.parameters)}`;
  if (item.tensor === null) return `${share}, ${plural(item.tensors, 'tensor')}`;
  return `${share}, ${item.tensor.dtype} ${shapeText(item.tensor.shape)}`;
}

class Treemap {
  constructor(module, colours, width, height) {
    this.colours = colours;
    this.count = 0;
    this.image = svg('svg', {
      viewBox: `0 0 ${width} ${height}`, width, height, role: 'tree', 'aria-orientation': 'horizontal',
      'aria-label': 'Treemap. Arrow keys, Home, End and first letters move, Enter opens, Escape goes back.',
    });
    this.frames = [];
    this.addFrame(drawnItems(module), {x: 0, y: 0, width, height}, this.image);
    // Those on top first, so that what is left out is at the bottom.
    for (let frame = this.frames.shift(); frame !== undefined; frame = this.frames.shift()) this.draw(frame);
    this.focusable = [...this.image.querySelectorAll('.tile')];
    if (this.focusable.length > 0) this.focusable[0].setAttribute('tabindex', '0');
  }

  addFrame(items, box, parent) {
    this.frames.push({items: items.slice(0, mostTiles - this.count), box, parent});
    this.count += items.length;
  }

  draw({items, box, parent}) {
    squarify(items, box, ({item, name}, place) => this.tile(item, name, place, parent));
  }

  tile(item, name, {x, y, width, height}, parent) {
    if (width < 0.5 || height < 0.5) return;
    const group = svg('g', {
      class: 'tile', role: 'treeitem', tabindex: '-1', 'aria-label': `${printable(item.path)}: ${describe(item)}`,
    });
    group.item = item;
    group.drawnName = name;
    parent.append(group);
    const gap = Math.min(1, width / 4, height / 4);
    const box = {x: x + gap / 2, y: y + gap / 2, width: width - gap, height: height - gap};
    const hasHead = height > 3 * head && width > 44;
    const top = hasHead ? head : 2;
    const inner = {x: box.x + 2, y: box.y + top, width: box.width - 4, height: box.height - top - 2};
    const items = drawnItems(item);
    const isFrame = item.tensor === null && Math.min(inner.width, inner.height) > 8
      && inner.width * inner.height > leastArea * items.length && this.count + items.length <= mostTiles;
    group.append(svg('rect', {...rounded(box), rx: Math.min(3, width / 6).toFixed(1),
                              class: isFrame ? 'frame' : this.classOf(item)}));
    if (isFrame ? hasHead : height > 16) this.label(group, name, item, box);
    // A module that is no frame is opened as a whole.
    if (item.tensor === null) group.setAttribute('aria-expanded', String(isFrame));
    if (!isFrame) return;
    const inside = svg('g', {role: 'group'});
    group.append(inside);
    this.addFrame(items, inner, inside);
  }

  // A module that is too small for a frame has the colour of its largest tensor.
  classOf(item) {
    const mark = item.bad > 0 ? ' bad' : '';
    while (item.tensor === null) item = item.items.reduce((a, b) => b.parameters > a.parameters ? b : a);
    return this.colours.classOf(item.tensor) + mark;
  }

  label(group, name, item, box) {
    const title = fitting(name, box.width - 10);
    if (title === '') return;
    const text = svg('text', {x: (box.x + 5).toFixed(1), y: (box.y + 13).toFixed(1)}, title);
    const size = shortCount(item.parameters);
    if (box.width - 14 > 6.6 * (title.length + size.length)) {
      text.append(svg('tspan', {class: 'size', dx: 6}, size));
    }
    group.append(text);
  }

  // Returns where a key moves the focus from a tile, if anywhere: left and right to those beside it, to the
  // first and the last of these, up to the frame around it, down into it, and to the next one beside it
  // whose name begins with a letter.
  nextOf(tile, key) {
    const beside = [...tile.parentNode.querySelectorAll(':scope > .tile')];
    const at = beside.indexOf(tile);
    const targets = {
      ArrowLeft: () => beside[at - 1], ArrowRight: () => beside[at + 1], Home: () => beside[0],
      End: () => beside.at(-1), ArrowUp: () => tile.parentNode.closest('.tile'),
      ArrowDown: () => tile.querySelector('.tile'),
    };
    if (Object.hasOwn(targets, key)) return targets[key]();
    if (key.length > 1) return null;
    const others = [...beside.slice(at + 1), ...beside.slice(0, at)];
    return others.find((other) => other.drawnName.toLowerCase().startsWith(key.toLowerCase()));
  }

  // Moves the focus from a tile to `next`.
  move(tile, next) {
    tile.setAttribute('tabindex', '-1');
    next.setAttribute('tabindex', '0');
    next.focus();
  }
}

function rounded({x, y, width, height}) {
  return {x: x.toFixed(1), y: y.toFixed(1), width: width.toFixed(1), height: height.toFixed(1)};
}

// The histogram of one tensor, in place of the treemap.
function largeHistogram(tensor, width, height) {
  const figures = tensor.figures;
  const [bottom, inner] = [height - 30, width - 2];
  const image = svg('svg', {
    class: 'histogram large', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
    'aria-label': histogramLabel(figures),
  });
  const at = (value) => 1 + placeOf(value, figures) * inner;
  const [low, high] = [figures.mean - figures.deviation, figures.mean + figures.deviation]
    .map((value) => at(Math.min(figures.max, Math.max(figures.min, value))));
  image.append(
    svg('rect', {class: 'band', x: low.toFixed(1), y: 0, width: (high - low).toFixed(1), height: bottom}),
    svg('path', {class: 'bars', d: barsPath(figures.bins, inner, bottom - 8), transform: 'translate(1 8)'}),
    svg('path', {class: 'axis', d: `M0 ${bottom}H${width}`}),
    svg('path', {class: 'mean', d: `M${at(figures.mean).toFixed(1)} 0V${bottom}`}));
  const marks = [[figures.min, 'start', figureText(figures.min)], [figures.max, 'end', figureText(figures.max)],
                 [figures.mean, 'middle', `mean ${figureText(figures.mean)} ± ${figureText(figures.deviation)}`]];
  for (const [value, anchor, text] of marks) {
    const x = anchor === 'middle' ? Math.min(width - 190, Math.max(190, at(value))) : at(value);
    image.append(svg('text', {x: x.toFixed(1), y: height - 10, 'text-anchor': anchor}, text));
  }
  return image;
}
