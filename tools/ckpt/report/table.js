// The table of tensors, a page of rows at a time.

const rowsOfAPage = 50;

// A column: how a tensor is sorted by it, and what its cell has. Numbers begin with the largest.
const columns = [
  {id: 'key', title: 'Key', value: (t) => t.key, cell: keyCell},
  {id: 'dtype', title: 'Dtype', value: (t) => t.dtype, cell: (t) => printable(t.dtype, 40)},
  {id: 'shape', title: 'Shape', number: true, value: (t) => t.elements, cell: (t) => shapeText(t.shape)},
  {id: 'bytes', title: 'Bytes', number: true, value: (t) => t.bytes, cell: (t) => sizeText(t.bytes),
   whole: (t) => countText(t.bytes)},
  ...(data.has_figures ? [
    {id: 'histogram', title: 'Histogram', cell: histogramCell},
    figureColumn('min', 'Min'), figureColumn('max', 'Max'), figureColumn('mean', 'Mean'),
    figureColumn('deviation', 'Std'),
    countColumn('nans', 'NaN'), countColumn('infinities', 'Inf'), countColumn('zeros', 'Zeros'),
  ] : []),
];

function figureColumn(id, title) {
  const value = (t) => t.figures?.[id] ?? null;
  return {id, title, number: true, value, cell: (t) => figureText(value(t)), whole: (t) => String(value(t) ?? '')};
}

function countColumn(id, title) {
  const value = (t) => t.figures?.[id] ?? null;
  const isBad = id !== 'zeros';
  return {
    id, title, number: true, value, cell: (t) => value(t) === null ? '' : countText(value(t)),
    style: (t) => value(t) === 0 ? 'faint' : isBad && value(t) !== null ? 'bad' : '',
  };
}

function keyCell(tensor) {
  const link = element('a', {href: fragment({module: tensor.key, page: 1})}, printable(tensor.key, 120));
  const notes = [];
  if (tensor.tied !== null) notes.push(`= ${printable(tensors[tensor.tied].key, 80)}`);
  if (tensor.error !== null) notes.push(printable(tensor.error));
  return [link, ...notes.map((note) => element('span', {class: tensor.error !== null ? 'note bad' : 'note'}, note))];
}

function histogramCell(tensor) {
  if (tensor.figures === null) return tensor.error === null ? `ckpt does not decode ${tensor.dtype}` : '';
  if (tensor.figures.bins.length > 0) return smallHistogram(tensor.figures);
  return tensor.figures.min === null ? '' : 'constant';
}

// The rows that the buttons above the table select.
const selections = {
  all: {title: 'All', has: () => true},
  nan: {title: 'NaN or Inf', has: hasBadNumbers},
  zero: {title: 'All zero', has: (t) => t.figures !== null && t.elements > 0 && t.figures.zeros === t.elements},
  constant: {title: 'Constant', has: (t) => t.figures !== null && t.elements > 1
    && t.figures.min !== null && t.figures.min === t.figures.max},
  tied: {title: 'Tied', has: (t) => t.tied !== null},
  error: {title: 'Errors', has: (t) => t.error !== null},
};

// The tensors of a module that have all words of the filter, sorted.
function rowsFor(state, module) {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const {has} = selections[state.only];
  const rows = tensorsIn(module).filter((tensor) => {
    if (!has(tensor)) return false;
    tensor.text ??= `${tensor.key} ${tensor.dtype} ${shapeText(tensor.shape)}`.toLowerCase();
    return words.every((word) => tensor.text.includes(word));
  });
  const [, sign, id] = /^(-?)(.*)$/.exec(state.sort);
  const column = columns.find((other) => other.id === id && other.value);
  if (column === undefined) return rows;
  const values = new Map(rows.map((tensor) => [tensor, column.value(tensor)]));
  const order = sign === '' ? 1 : -1;
  return rows.sort((one, two) => {
    const [a, b] = [values.get(one), values.get(two)];
    if (a === null || b === null) return (a === null) - (b === null);  // Missing figures come last.
    return order * (column.number ? a - b : compareText(a, b));
  });
}

function headCell(column, state) {
  const kind = column.number ? 'number' : null;
  if (!column.value) return element('th', {scope: 'col'}, column.title);
  const isUp = state.sort === column.id, isDown = state.sort === `-${column.id}`;
  const first = column.number ? `-${column.id}` : column.id;
  const second = column.number ? column.id : `-${column.id}`;
  const button = element('button', {type: 'button', 'data-sort': column.id}, column.title,
                         element('span', {class: 'arrow', 'aria-hidden': 'true'}, isUp ? '▲' : isDown ? '▼' : ''));
  button.addEventListener('click', () => {
    change({sort: state.sort === first ? second : state.sort === second ? '' : first, page: 1});
    byId('table').querySelector(`[data-sort="${column.id}"]`).focus();
  });
  return element('th', {scope: 'col', class: kind, 'aria-sort': isUp ? 'ascending' : isDown ? 'descending' : null},
                 button);
}

function bodyCell(column, tensor) {
  const content = column.cell(tensor);
  const attributes = {
    class: [column.id, column.number ? 'number' : '', column.style?.(tensor) ?? ''].filter(Boolean).join(' '),
    title: column.whole?.(tensor) || null,
  };
  const isKey = column.id === 'key';
  return element(isKey ? 'th' : 'td', isKey ? {...attributes, scope: 'row'} : attributes,
                 ...(Array.isArray(content) ? content : [content]));
}

function showTable(state, module) {
  const rows = rowsFor(state, module);
  const pages = Math.max(1, Math.ceil(rows.length / rowsOfAPage));
  const page = Math.min(Math.max(1, state.page), pages);
  const begin = (page - 1) * rowsOfAPage;
  const shown = rows.slice(begin, begin + rowsOfAPage);
  byId('table').tHead.rows[0].replaceChildren(...columns.map((column) => headCell(column, state)));
  byId('table').tBodies[0].replaceChildren(...shown.map(
    (tensor) => element('tr', {}, ...columns.map((column) => bodyCell(column, tensor)))));
  const where = module === root ? '' : ` in ${printable(module.path, 120)}`;
  byId('place').textContent = rows.length === 0 ? `No tensor matches${where}`
    : `${countText(begin + 1)}–${countText(begin + shown.length)} of ${plural(rows.length, 'tensor')}${where}`;
  for (const [id, target] of [['previous', page - 1], ['next', page + 1]]) {
    byId(id).disabled = target < 1 || target > pages;
    byId(id).dataset.page = target;
    byId(id).hidden = pages === 1;
  }
}
