// The types that the files of the widget share: what it is sent, what it draws, what its parts are.

declare global {
  /** What Streamlit sends apart from the views: code, and long arrays by name; and who waits for it. */
  var interpParts: Parts | undefined;
  /** The timer that asks whether the server is there. */
  var interpHealth: number | undefined;
  /** The tokens of the texts of a scan, by attention and number of the text, on the pages of a site. */
  var interpTexts: Record<string, { tokens: string[][]; keys?: string[][] }> | undefined;
}

export interface Parts {
  held: Map<string, { part: unknown; mounts: number }>;
  waiting: Set<() => void>;
  /** Draws views; there once the code has arrived. */
  mountViews?: (parent: HTMLElement, payload: Payload, host: Host) => MountedViews;
}

// ---- numbers -----------------------------------------------------------------------------------

export type Numbers =
  | Float64Array | Float32Array | Int32Array | Uint32Array | Int16Array | Uint16Array | Int8Array | Uint8Array;
/** An array in base64, in row-major order. */
export interface Encoded { dtype: string; shape: number[]; data: string }
export interface Decoded { shape: number[]; data: Numbers }
/** A list of numbers, or of such lists; null stands for NaN. */
export type Nested = (number | null | Nested)[];
export type Sent = Encoded | Decoded | Nested;

// ---- colours and drawing -----------------------------------------------------------------------

export type ScaleKind = "sequential" | "diverging" | "tint" | "grey";
export interface Scale {
  kind: ScaleKind; low: number; high: number; root?: boolean;
  /** The side of zero on which a component helps, which has one colour in all views. */
  helps?: "above" | "below" | null;
}
/** Red, green and blue, from 0 to 255. */
export type Colour = number[];
export interface Theme {
  paper: string; ink: string; soft: string; line: string; wash: string; accent: string; link: string;
  dark: boolean;
}
export type Context = CanvasRenderingContext2D;
/** The width of a text in the font of labels. */
export type Measure = (text: string) => number;
export interface Writing {
  colour: string; size?: number; weight?: number; align?: "left" | "center" | "right"; angle?: number;
  baseline?: CanvasTextBaseline;
}
export type Point = [x: number, y: number];
export type Box = [x: number, y: number, width: number, height: number];
export interface Size { width: number; height: number }

/** A cell of a plot; what its two numbers are differs: row and column, layer and head, curve and point. */
export type Cell = [number, number];
export interface Description {
  name: string; value?: number; unit?: string; text?: string; signed?: boolean; lines?: string[];
  x?: number; pick?: string;
}
/** What draws a view on a canvas, and does not depend on the page. */
export interface Plot<Geometry extends Size = Size> {
  rows: number;
  columns: number;
  /** Its places on a width, and if possible within a height. */
  layout(width: number, measure: Measure, most?: number): Geometry;
  /** Draws the plot; what is above or below a range may be left out. */
  draw(ctx: Context, geometry: Geometry, theme: Theme, range?: [top: number, bottom: number]): void;
  /** Draws over the plot what changes more often than the plot. */
  over?(ctx: Context, geometry: Geometry, theme: Theme): void;
  /** Marks a cell. */
  mark(ctx: Context, geometry: Geometry, theme: Theme, cell: Cell): void;
  pick(geometry: Geometry, x: number, y: number): Cell | null;
  /** The row whose label is at a place. */
  labelAt?(geometry: Geometry, x: number, y: number): number | null;
  /** Whether a cell is drawn; without this function, all are. */
  has?(cell: Cell): boolean;
  box(geometry: Geometry, cell: Cell): Box;
  describe(cell: Cell): Description;
  /** The cell a number of rows and columns away; the first one from null. */
  move(cell: Cell | null, down: number, right: number): Cell | null;
}
/** A plot that knows its view. */
export interface MatrixPlot extends Plot { view: Matrix }
/** What a saved picture shows; part names the part of the view. */
export interface Picture extends Size {
  paint(ctx: Context, theme: Theme): void; part?: string;
  /** In place of the note of the view. */
  note?: string;
}

// ---- views, as they are sent -------------------------------------------------------------------

/** What all views have, beside what they show. */
export interface Shown {
  id: string; title: string; note?: string; marked_note?: string; file?: string; unit?: string;
  /** Of which run of the model the numbers are. */
  run?: string;
  /** What a click chooses and reports. */
  pick?: string | null;
  /** The cell that is chosen at first; of a table, its row and 0. */
  at?: Cell;
  /** Whether it stands beside the next or the previous such view where the page is wide. */
  half?: boolean;
}
/** Further numbers of a view, with a title; estimated is 1 where they are estimates. */
export interface Titled { title: string; values: Sent; estimated?: Sent; helps?: Scale["helps"] }

export interface Matrix {
  kind: "matrix"; title?: string; rows: string[]; columns: string[]; row_axis: string; column_axis: string;
  values: Sent; scale: Scale; unit?: string; numbers?: boolean; pick?: string | null; marked?: Cell[];
  texts?: string[][]; hover?: string[][][]; beside?: Titled[];
  /** 1 where a value is an estimate, 0 where it is measured. */
  estimated?: Sent;
}
export interface MatrixView extends Shown, Matrix { title: string }
export interface BarsView extends Shown {
  kind: "bars"; labels: string[]; values: Sent; low?: Sent; high?: Sent; scale?: Scale;
  first?: string; second?: Titled; marks?: Titled[];
  /** The numbers of all ids, of which the rows are some; of: a name for what the ids number. */
  every?: { of: string; ids: number[]; values: Sent };
  /** 1 where a bar is an estimate. */
  estimated?: Sent;
}
export interface SentCurve { name: string; x: Sent; y: Sent; faint?: boolean }
export interface SentPanel { title: string; unit: string; curves: SentCurve[]; ends?: number[] }
export interface CurvesView extends Shown {
  kind: "curves"; axis: string; log?: boolean; panels: SentPanel[]; marked?: number[];
}
export interface GraphNode { name: string; x: number; y: number; label?: string; note?: string }
/** An edge with the letter by which a head reads it, if it has one. */
export type Edge = [from: number, to: number, weight: number, letter?: string];
export interface NetworkView extends Shown {
  kind: "network"; nodes: GraphNode[]; edges: Edge[];
  /** Whether the weights are estimates. */
  estimated?: boolean;
  /** Labels of columns and rows, if nodes are placed by them. */
  columns?: string[]; rows?: string[];
  /** The node to which all drawn edges lead, and the size from which edges are drawn at first. */
  root?: number; least?: number;
}
export interface TokensView extends Shown, Strip {
  kind: "tokens"; values?: Sent; scale?: Scale; double?: string | null;
}
export interface Column { title: string; unit?: string; align?: string }
export type CellValue = string | number | null | undefined;
export interface TableView extends Shown { kind: "table"; columns: Column[]; rows: CellValue[][] }
/** A score of heads, one number a head. */
export interface Score {
  id: string; name: string; values: Sent; unit?: string; scale?: Scale | ScaleKind; low?: Sent; high?: Sent;
  control?: string; n?: number; estimated?: Sent;
  /** A shorter name, for tables. */
  short?: string | null;
  /** Ranked by the value; without it, a score around zero is ranked by its size. */
  by?: "value";
}
/** Patterns of heads of all layers: as one array, one a layer, or small ones and those of one layer. */
export type SentPatterns =
  | Encoded | Encoded[] | { thumbnails: Encoded; layer: { index: number; patterns: Encoded } };
export interface HeadsView extends Shown {
  kind: "heads"; tokens: string[]; ids?: number[]; queries?: string[]; query_ids?: number[];
  /** As for a view "tokens". */
  token_roles?: string[];
  patterns: SentPatterns; weighted?: SentPatterns; scores?: Score[]; bos?: boolean; causal?: boolean;
  /** By the name of the head. */
  truth?: Record<string, string> | null; roles?: Record<string, string>;
  /** By layer and head. */
  names?: string[][];
  /** Patterns that are subtracted from those of the view; weights are then from −1 to 1. */
  minus?: SentPatterns; minus_weighted?: SentPatterns;
}
export interface ScatterView extends Shown {
  kind: "scatter"; x: Sent; y: Sent; labels: string[]; axes: [string, string]; units: [string, string];
  /** The groups, and the index of that of each point. */
  groups: string[]; group: number[];
}
/** Where a head attends in a text: the number of cells of each query, and their keys and weights, by query.
 *  Bytes are weights of which 255 is 1. */
export interface SentText {
  /** Its number in the sample, and where it was read. */
  number: number; source: string;
  tokens: string[];
  /** The tokens that are attended to, if they are others. */
  keys?: string[];
  count: Sent; key: Sent; weight: Sent;
}
/** A statistic with its texts: the decile, the index in the view, the value of the statistic on it. */
export interface TextStatistic { name: string; unit: string; rows: [decile: number, text: number, value: number][] }
/** Texts of a head by decile of a statistic. */
export interface TextsView extends Shown {
  kind: "texts"; statistics: TextStatistic[]; texts: SentText[];
  /** The name of the statistic that is chosen at first. */
  chosen?: string | null;
  /** The attention whose tokens a script has that several pages share. */
  shared?: string;
}
/** All heads with the numbers that can be axes, by weighting, axis and head; the axes drawn at first. */
export interface ScanView extends Shown {
  kind: "scan"; names: string[]; groups: string[]; group: number[]; weightings: string[];
  axes: { name: string; unit: string }[]; values: Sent; x: string; y: string; by: string;
}
/** Two views with one id that are subtracted; null for one that is missing. */
export interface DifferenceView extends Shown {
  kind: "difference"; a: View | null; b: View | null;
  /** The score that a map of heads shows. */
  score?: string;
}
/** A view without a figure, and why. */
export interface NoneView extends Shown { kind: "none"; reason: string }
export type PlottedView = MatrixView | BarsView | CurvesView | NetworkView | ScatterView;
/** A view with numbers. */
export type DrawnView = PlottedView | TokensView | TableView | HeadsView | TextsView | ScanView;
export type View = DrawnView | DifferenceView | NoneView;

export interface Meta { model?: string; prompt?: string; n?: number | null; version?: string }
export interface Selection {
  head: Cell | null; heads: Cell[]; query: number | null; key: number | null; position: number | null;
}
export interface Payload {
  views: View[]; selection?: Partial<Selection>; meta?: Meta;
  /** Ids of views that are dimmed. */
  stale?: string[];
  /** The initial states of views, by id. */
  initially?: Record<string, object>;
  /** The name of the file of a button that saves all figures of the page. */
  figures?: string;
}

// ---- parts of the page -------------------------------------------------------------------------

/** What Streamlit calls a component with. */
export interface Component<Data> {
  parentElement: HTMLElement;
  data: Data;
  setTriggerValue(name: string, value: unknown): void;
}
/** Attributes of an element; functions are event listeners. */
export interface Attributes {
  [name: string]: unknown;
  click?: (event: MouseEvent) => void;
  keydown?: (event: KeyboardEvent) => void;
}
/** What is reported of a click. */
export interface Picked { view?: string; pick: string; [name: string]: unknown }
export interface Host { report(event: Picked): void; explores?: boolean }
export interface MountedViews { update(payload: Payload): void; dispose(): void }

/** What a view gets from the mount that it is in. */
export interface Mount {
  root: HTMLElement;
  selection(): Selection;
  meta(): Meta;
  theme(): Theme;
  /** Pixels of a canvas for one of the page. */
  ratio(): number;
  announce(text: string): void;
  /** Shows what a cell is beside a place of the window. */
  tip(described: Description | null, x?: number, y?: number): void;
  help(): void;
  search(box: HTMLElement, tokens: string[], onFound: (n: number) => void): void;
  /** The state of a view, which outlives the view. */
  stateOf<State extends object>(id: string, initial: State): State;
  /** Runs a task when the views are on the page. */
  defer(task: () => void): void;
  select(change: Partial<Selection>, options?: { quiet?: boolean }): void;
  /** Shows a head that is under the pointer in all other views; null ends it. */
  point(head: Cell | null, from: Controller["root"]): void;
  collect(head: Cell | null, view: string): void;
  report(event: Picked): void;
  /** Whether a server answers clicks: views can be pinned, and the address is a link to them. */
  explores: boolean;
}
/** A view on the page. */
export interface Controller {
  root: HTMLElement;
  focus(options?: FocusOptions): void;
  refresh(): void;
  fromSelection(): void;
  /** Shows the head that is under the pointer in another view. */
  pointed?(head: Cell | null): void;
  dispose(): void;
  scrolled?: HTMLElement;
  reveal?(): void;
}

export interface DataTable { caption: string; columns: string[]; rows: CellValue[][] }
/** The functions of a view that the buttons around it call. */
export interface FrameParts {
  dataTables(): DataTable[];
  /** What the selected cell is. */
  describe(): Description | null;
  /** What a saved picture shows. */
  picture?(): Picture | null;
  /** The pictures that are saved as SVG, if these are several. */
  pictures?(): (Picture | null)[];
}
export interface Frame {
  root: HTMLElement;
  body: HTMLElement;
  actions: { table(): void; csv(): void; png(): void; copy(): void };
  selected(place: number[] | null, described: Description | null): void;
  refreshDataTable(): void;
  ready(): void;
}
export interface Scroll { left: number; top: number; moved: boolean }
export interface SurfaceOptions {
  label?: string; focusable?: boolean;
  /** Whether the plot should fit the height of its box, where the style sheet makes the box grow. */
  limited?: boolean;
  /** Whether the box is no higher than its plot. */
  snug?: boolean;
  /** Whether only the part of the plot is drawn that the box shows, and a little more. */
  windowed?: boolean;
  /** Where it is scrolled to, which outlives the surface. */
  scroll?: Scroll;
  onLabel?(row: number): void;
  onPick(cell: Cell, event: MouseEvent): void;
  onHover?(cell: Cell | null): void;
  onDrawn?(): void;
}
/** Two canvases in a box, which show a plot. */
export interface Surface<Drawn extends Plot = Plot> {
  box: HTMLElement;
  show(plot: Drawn): void;
  refresh(): void;
  hover(cell: Cell | null): void;
  choose(cell: Cell | null): void;
  measure: Measure;
  reveal(cell: Cell, how?: { centred?: boolean }): void;
  plot(): Drawn | null;
  selected(): Cell | null;
  geometry(): Size | null;
  dispose(): void;
}

/** Values that colour tokens. */
export interface Tints { values: number[]; scale: Scale; unit?: string }
/** Tokens, with what is shown about them. */
export interface Strip {
  tokens: string[]; ids?: number[]; bos?: boolean; masked?: number[];
  /** Other tokens below the tokens, and what they are called. */
  aligned?: string[]; below?: string;
  /** Whose each token of a chat is: the role of its message, or "template". */
  roles?: string[];
}
export interface StripOptions extends Strip {
  differs?: Set<number>; label?: string; focusable?: boolean;
  onHover?(n: number | null): void;
  onPick?(n: number, event: MouseEvent): void;
  onDouble?: ((n: number, event: MouseEvent) => void) | null;
  /** What the tip shows, in place of the position and the value. */
  describe?(n: number): Description;
}
export interface TokenStrip {
  root: HTMLElement;
  tint(tints: Tints | null): void;
  /** Gives each token a colour; null is none. */
  paint(colours: (Colour | null)[]): void;
  choose(n: number | null): void;
  describe(n: number): Description;
  spans: HTMLElement[];
  count: number;
}

// ---- heads -------------------------------------------------------------------------------------

/** The pattern of a head in bytes, or a difference of two; 255 is a weight of 1. */
export interface Pattern { queries: number; keys: number; data: Numbers }
/** Patterns of the heads of a layer; data is null where only the small form was sent. */
export interface Layer { heads: number; queries: number; keys: number; data: Numbers | null; small?: Layer }
export interface Store {
  layers: number;
  heads(layer: number): number;
  of(layer: number, head: number, byValue?: boolean): Pattern | null;
  thumbnail(layer: number, head: number): Pattern;
  /** Of differences, the largest absolute weight of all thumbnails; else null. */
  most: number | null;
}
/** Which cells show no weight. */
export interface Hidden { causal?: boolean; hideBos?: boolean }
/** What the controls of a view "heads" are set to. */
export interface HeadsState {
  score: string | null; contrast: number; root: boolean; hideBos: boolean; weighted: boolean;
  /** Keys that a query attends to, or queries that attend to a key. */
  mode: "to" | "from";
  truth: boolean;
  /** Of the map: how large its cells are, whether heads are sorted, first layers of folded groups. */
  zoom: number; sorted: boolean; folded: number[];
  /** Which patterns are drawn small: all, or those of the heads that rank highest. */
  few: boolean;
  scrolls: { map: Scroll; all: Scroll; list: Scroll };
}
/** What the keys of a view "heads" do. */
export interface HeadActions {
  mount: Mount; own: Frame;
  moveCell(down: number, right: number): void;
  moveHead(down: number, right: number): void;
  collect(): void; bos(): void; search(): void; clear(): void;
  zoom(by: number): void; fold(): void;
}
/** The cells of a text, by query and by key: positions and weights, the largest first. */
export interface TextCells {
  keys: Weighted[][]; queries: Weighted[][];
  /** Sum of the weights on each key, and of those of each query on other tokens than the first. */
  received: number[]; given: number[];
}
export type Weighted = [position: number, weight: number];
/** What the controls of a view "texts" are set to. */
export interface TextsState { statistic: string; mode: "received" | "given" }
/** What the controls of a view "scan" are set to. */
export interface ScanState { x: string; y: string; by: string; weighting: number }
export interface FinderOptions { id: string; names: string[]; onHover(n: number | null): void; onPick(n: number): void;
  /** Called with the heads that a search finds; none without a search. */
  onSearch(heads: number[]): void;
}
/** A list of heads by a number, with a search field. */
export interface Finder {
  root: HTMLElement; field: HTMLInputElement;
  rank(values: number[]): void;
  hover(n: number | null): void;
  fill(): void;
  rankText(n: number): string;
  describe(n: number): string;
}
/** A query or a key. */
export interface Place { query?: number; key?: number }
