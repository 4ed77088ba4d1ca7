// The state of the page, which is in the fragment of its address, and what is shown of it.
// #module=h.0&filter=weight&only=nan&sort=-bytes&page=2&colour=dtype

const start = {module: '', filter: '', only: 'all', sort: '', page: 1, colour: Object.keys(colourings)[0]};

function stateOf(address) {
  const state = {...start};
  for (const [name, text] of new URLSearchParams(address.replace(/^#/, ''))) {
    if (Object.hasOwn(start, name)) state[name] = name === 'page' ? Number.parseInt(text, 10) || 1 : text;
  }
  if (!Object.hasOwn(selections, state.only)) state.only = start.only;
  if (!Object.hasOwn(colourings, state.colour)) state.colour = start.colour;
  return state;
}

let state = stateOf(location.hash);

// The address of the state with these changes.
function fragment(changes) {
  const next = Object.entries({...state, ...changes}).filter(([name, value]) => value !== start[name]);
  return '#' + new URLSearchParams(next);
}

function change(changes, isNewStep = false) {
  const address = fragment(changes);
  if (isNewStep) {
    location.hash = address;  // The event shows it.
  } else {
    history.replaceState(null, '', address);
    show();
  }
}

function choices(id, options, name) {
  byId(id).replaceChildren(...options.map(([value, title]) => {
    const button = element('button', {type: 'button', 'data-value': value}, title);
    button.addEventListener('click', () => change({[name]: value, page: 1}));
    return button;
  }));
}

function markChoice(id, value) {
  for (const button of byId(id).children) {
    button.setAttribute('aria-pressed', String(button.dataset.value === value));
  }
}

// The treemap.

function showCrumbs(module) {
  const items = [root, ...module.ancestry];
  byId('crumbs').replaceChildren(...items.map((item, i) => {
    const name = i === 0 ? 'all' : printable(item.name, 60);
    const isLast = i + 1 === items.length;
    return element('li', {}, isLast ? element('span', {'aria-current': 'location'}, name)
      : element('a', {href: fragment({module: item.path, page: 1})}, name));
  }));
}

let treemap = null;
let drawn = '';  // The state that the treemap shows.

function showModule(module) {
  showCrumbs(module);
  byId('summary').textContent = `${describe(module)}, ${sizeText(module.bytes)}`;
  const place = byId('treemap');
  const width = Math.max(280, Math.floor(place.clientWidth));
  const wanted = `${width} ${state.colour} ${module.path}`;
  if (wanted === drawn) return;
  drawn = wanted;
  const height = Math.round(Math.min(560, Math.max(320, width * 0.46)));
  const isTensor = module.tensor !== null;
  byId('legend').replaceChildren();
  byId('colours').hidden = isTensor;
  treemap = null;
  if (isTensor) {
    const {figures} = module.tensor;
    place.replaceChildren(figures !== null && figures.bins.length > 0
      ? largeHistogram(module.tensor, width, Math.round(height * 0.6))
      : element('p', {class: 'empty'}, 'There is no histogram of this tensor.'));
  } else if (module.parameters === 0) {
    place.replaceChildren(element('p', {class: 'empty'}, 'There are no parameters.'));
  } else {
    const colours = colourings[state.colour].of(tensorsIn(module));
    treemap = new Treemap(module, colours, width, height);
    place.replaceChildren(treemap.image);
    byId('legend').replaceChildren(...colours.legend.map(([kind, text, number]) => element(
      'span', {class: 'entry'}, element('span', {class: `swatch ${kind}`}), element('strong', {}, text),
      ` ${number}`)));
  }
}

// Describes the tile under the pointer, or the one with the focus.
function showTip(tile, x, y) {
  const tip = byId('tip');
  tip.hidden = tile === null;
  if (tile === null) return;
  const lines = [element('strong', {}, printable(tile.item.path, 120)), element('span', {}, describe(tile.item))];
  const tensor = tile.item.tensor;
  if (tensor?.figures?.min != null) {
    const {mean, deviation, min, max} = tensor.figures;
    lines.push(element('span', {}, `${figureText(mean)} ± ${figureText(deviation)}, from ${figureText(min)} to ${
      figureText(max)}`));
    if (tensor.figures.bins.length > 0) lines.push(smallHistogram(tensor.figures));
  }
  const {bad} = tile.item;
  if (bad > 0) lines.push(element('span', {class: 'bad'}, `${plural(bad, 'tensor')} with NaN or infinities`));
  tip.replaceChildren(...lines);
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
}

function listenToTreemap() {
  const place = byId('treemap');
  const tileOf = (event) => event.target.closest('.tile');
  const open = (tile) => change({module: tile.item.path, page: 1}, true);
  place.addEventListener('click', (event) => tileOf(event) && open(tileOf(event)));
  place.addEventListener('mousemove', (event) => showTip(tileOf(event), event.clientX, event.clientY));
  place.addEventListener('mouseleave', () => showTip(null));
  place.addEventListener('focusout', () => showTip(null));
  place.addEventListener('focusin', (event) => {
    if (!event.target.matches('.tile:focus-visible')) return;
    const box = event.target.getBoundingClientRect();
    showTip(event.target, box.left, Math.min(box.bottom, innerHeight) - 14);
  });
  place.addEventListener('keydown', (event) => {
    const tile = tileOf(event);
    if (tile === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const isClosed = tile.getAttribute('aria-expanded') === 'false';
    const next = treemap.nextOf(tile, event.key);
    if (event.key === 'Enter' || event.key === ' ' || (event.key === 'ArrowDown' && isClosed)) open(tile);
    else if (event.key === 'Escape') change({module: itemAt(state.module).parent?.path ?? '', page: 1}, true);
    else if (next) treemap.move(tile, next);
    else if (!event.key.startsWith('Arrow')) return;
    event.preventDefault();
  });
}

// All that depends on the state.
function show() {
  state = stateOf(location.hash);
  const module = itemAt(state.module);
  showTip(null);
  showModule(module);
  showTable(state, module);
  markChoice('colours', state.colour);
  markChoice('only', state.only);
  if (document.activeElement !== byId('filter')) byId('filter').value = state.filter;
}

function begin() {
  byId('main').hidden = byId('parts').hidden = false;
  showOverview();
  showImports();
  showValues();
  choices('colours', Object.entries(colourings).map(([id, {title}]) => [id, title]), 'colour');
  choices('only', Object.entries(selections).map(([id, {title, has}]) => {
    const count = tensors.filter(has).length;
    return [id, `${title} ${countText(count)}`, count];
  }).filter(([id, , count]) => id === 'all' || count > 0), 'only');
  byId('only').hidden = byId('only').children.length < 2;
  byId('filter').addEventListener('input', (event) => change({filter: event.target.value, page: 1}));
  for (const id of ['previous', 'next']) {
    byId(id).addEventListener('click', () => change({page: Number(byId(id).dataset.page)}));
  }
  for (const link of document.querySelectorAll('a[data-to]')) {
    link.addEventListener('click', (event) => {
      event.preventDefault();  // The fragment is that of the state.
      byId(link.dataset.to).scrollIntoView();
      byId(link.dataset.to).focus();
    });
  }
  listenToTreemap();
  addEventListener('hashchange', () => {
    const hadFocus = byId('treemap').contains(document.activeElement);
    show();
    if (hadFocus) (treemap?.focusable[0] ?? byId('crumbs').querySelector('a'))?.focus();
  });
  addEventListener('resize', () => showModule(itemAt(state.module)));
  show();
}

begin();
