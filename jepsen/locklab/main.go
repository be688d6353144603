package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/page"
	"lockkeeper/jepsen/locklab/play"
	"lockkeeper/jepsen/locklab/store"
	"lockkeeper/jepsen/locklab/system"
	"lockkeeper/jepsen/locklab/ways"
	"lockkeeper/jepsen/report"
)

// Exit statuses.
const (
	exitOK      = 0
	exitInvalid = 1 // a forbidden outcome, see options.judge
	exitUsage   = 2 // a wrong command line, or it could not be done
)

const about = `Plays stories of distributed locks with real servers and real client libraries: a holder that
is stopped, cut off or dies, servers that fail over, clocks that jump. For each way to lock it
measures who let two holders in, who lost an update, who was told, and what a lock costs.
docs/lock-lab.md says how, and what came. Servers that are not installed are named and left
out. Nothing but the report is left afterwards, however it ends.
`

const exits = `Exit status: 0; 1 a lock does not exclude even without a fault, a side without a majority
gives locks away, a fence in a store loses an update, or a planted bug was not found; 2 it could not be done, or was called off.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// options is the command line.
type options struct {
	systems, ways, faults, explain string
	brief, cuts, twins, list, long bool
	rounds, times, jobs            int
	together, share                int
	fences                         string
	seed                           uint64
	lease, cost, during            time.Duration
	report, out, pictures, known   string
}

// parse reads the command line. If ok is false the program ends with that status.
func parse(args []string, stdout, stderr io.Writer) (o options, status int, ok bool) {
	f := flag.NewFlagSet("lock-lab", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.systems, "systems", "", "the systems, `name,name`; by default all that are installed")
	f.StringVar(&o.ways, "ways", "", "the ways to lock, `name,name`; by default all of these systems")
	f.StringVar(&o.faults, "faults", "", "the stories, `name,name`; by default all")
	f.BoolVar(&o.brief, "brief", false, "two faults, pause-writing and crash-held, with -fences "+briefFence+"; one round, a lease of a\n"+
		"second")
	f.BoolVar(&o.cuts, "cuts", false, "the stories in which the network is cut between servers; as root, on Linux")
	f.BoolVar(&o.twins, "twins", false, "also the twins with planted bugs, each of which has to be found")
	f.BoolVar(&o.list, "list", false, "print the systems, ways and stories, and end")
	f.IntVar(&o.rounds, "rounds", 3, "how often each story is played, `n` times")
	f.IntVar(&o.together, "together", 20, "how many `rounds` of a story run at the same time at most")
	f.IntVar(&o.share, "share", 1, "how many rounds have their clients A in one `process`, and so B and C: it is stopped\n"+
		"and killed when all of them have come to that point")
	f.StringVar(&o.fences, "fences", "", "the real stores with a counter behind their fence, `name,name`, of which each round has\n"+
		"one in turn; \"all\" for all that are installed")
	f.BoolVar(&o.long, "long", false, "1,000 rounds of each story: -rounds 1000 -together 100 -share 100 -fences all")
	f.IntVar(&o.jobs, "jobs", 1, "how many systems are played with at the same time; costs are measured better one by one")
	f.IntVar(&o.times, "times", 0, "how many `acquisitions` the story without a fault has at most (with a long -cost);\n"+
		"0 for no bound")
	f.Uint64Var(&o.seed, "seed", 1, "what chance decides: when clients die, for how long they are stopped")
	f.DurationVar(&o.lease, "lease", 2*time.Second, "the lease of a lock: session timeout, TTL")
	f.DurationVar(&o.cost, "cost", 3*time.Second, "for how long the costs of a lock are measured, twice")
	f.StringVar(&o.explain, "explain", "", "play one `case`, WAY/FAULT, once, and print it as a story")
	f.StringVar(&o.report, "report", "", "the `directory` where the report goes; by default one below jepsen-runs")
	f.StringVar(&o.known, "known", "", "a `file` of rounds: those that it has are not played again, the others are added")
	f.DurationVar(&o.during, "for", 0, "begin nothing after this `time`; with -known the next run goes on")
	f.StringVar(&o.out, "out", "", "also put the tables into their place in this `file`, as docs/lock-lab.md")
	f.StringVar(&o.pictures, "pictures", "", "with -out: pictures of these `cases` go into a directory beside the file,\n"+
		"WAY/FAULT,WAY/FAULT")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(stdout)
		fmt.Fprintf(stdout, "usage: go run ./cmd/jepsen lock-lab [flags]\n\n%s\nFlags:\n", about)
		f.PrintDefaults()
		fmt.Fprintf(stdout, "\n%s", exits)
		return o, exitOK, false
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case err == nil:
		err = o.check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "lock-lab: %v\ngo run ./cmd/jepsen lock-lab -help says what it takes\n", err)
		return o, exitUsage, false
	}
	return o, exitOK, true
}

// briefFence is the store of the short form: the one transaction that needs no server.
const briefFence = "sqlite"

// check validates the flags, and fills in those that follow from others.
func (o *options) check() error {
	if o.explain != "" {
		way, fault, ok := strings.Cut(o.explain, "/")
		if !ok {
			return fmt.Errorf("-explain %q: it is WAY/FAULT", o.explain)
		}
		o.ways, o.faults, o.rounds, o.twins = way, fault, 1, true
		f, _ := play.FindFault(fault)
		o.cuts = f.Left > 0
	}
	if o.brief {
		o.rounds, o.lease, o.jobs, o.fences = 1, time.Second, 3, cmp.Or(o.fences, briefFence)
		if o.faults == "" {
			o.faults = "pause-writing,crash-held"
		}
	}
	if o.long {
		o.rounds, o.together, o.share, o.fences = 1000, 100, 100, cmp.Or(o.fences, "all")
	}
	var errs []error
	if o.rounds < 1 || o.rounds > 10_000 {
		errs = append(errs, fmt.Errorf("-rounds %d: it is 1 to 10000", o.rounds))
	}
	if o.together < 1 || o.together > 500 || o.share < 1 || o.share > o.together {
		errs = append(errs, fmt.Errorf("-together %d -share %d: at most 500 rounds run together, and at most these share a process",
			o.together, o.share))
	}
	for _, name := range words(o.fences) {
		if name != "all" && !slices.Contains(store.Kinds, name) {
			errs = append(errs, fmt.Errorf("there is no store %q: there are %s", name, strings.Join(store.Kinds, ", ")))
		}
	}
	if o.cuts && (o.brief || o.jobs > 1) {
		errs = append(errs, errors.New("-cuts: not with -brief, nor -jobs: there is one network at a time"))
	}
	if o.jobs < 1 {
		errs = append(errs, fmt.Errorf("-jobs %d: it is at least 1", o.jobs))
	}
	if o.lease < 200*time.Millisecond || o.lease > time.Minute {
		errs = append(errs, fmt.Errorf("-lease %v: it is 200ms to 1m", o.lease))
	}
	for _, name := range words(o.faults) {
		_, err := play.FindFault(name)
		errs = append(errs, err)
	}
	for _, name := range words(o.ways) {
		if !slices.ContainsFunc(ways.All(), func(w lock.Way) bool { return w.Name == name }) {
			errs = append(errs, fmt.Errorf("there is no way %q", name))
		}
	}
	for _, name := range words(o.systems) {
		if !slices.ContainsFunc(system.Kinds(), func(k system.Kind) bool { return k.Name == name }) {
			errs = append(errs, fmt.Errorf("there is no system %q", name))
		}
	}
	return errors.Join(errs...)
}

// words splits a list at its commas.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// chosen says whether a name is in a list; an empty list has all.
func chosen(list, name string) bool { return list == "" || slices.Contains(words(list), name) }

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "client" {
		if err := play.Client(ways.All(), os.Stdin, stdout); err != nil {
			fmt.Fprintf(stderr, "lock-lab client: %v\n", err)
			return exitUsage
		}
		return exitOK
	}
	o, status, ok := parse(args, stdout, stderr)
	if !ok {
		return status
	}
	if o.list {
		printList(stdout)
		return exitOK
	}
	d, err := o.play(ctx, args, stdout)
	if err == nil && o.explain == "" {
		err = o.write(d, stdout)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("called off")
		}
		fmt.Fprintf(stderr, "lock-lab: %v\n", err)
		return exitUsage
	}
	if complaints := o.judge(d); len(complaints) > 0 {
		fmt.Fprintln(stdout, "\n"+strings.Join(complaints, "\n"))
		return exitInvalid
	}
	return exitOK
}

func printList(w io.Writer) {
	fmt.Fprintln(w, "Systems:")
	for _, k := range system.Kinds() {
		state := "can be started"
		if err := k.Needs(); err != nil {
			state = err.Error()
		}
		fmt.Fprintf(w, "  %-16s %s\n", k.Name, state)
	}
	fmt.Fprintln(w, "\nWays to lock:")
	for _, way := range ways.All() {
		text := way.System
		if way.Fenced {
			text += ", with tokens"
		}
		if way.Twin != "" {
			text += ", the twin with a fence of " + way.Twin
		}
		if way.Broken {
			text += ", a twin with a planted bug"
		}
		fmt.Fprintf(w, "  %-28s %s\n", way.Name, text)
	}
	fmt.Fprintln(w, "\nStories:")
	for _, f := range play.All() {
		fmt.Fprintf(w, "  %-16s %s\n", f.Name, f.Text)
	}
}

// play plays the stories that the flags select.
func (o options) play(ctx context.Context, args []string, stdout io.Writer) (d *page.Document, err error) {
	scratch, err := jepsen.NewScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("where is this program? %w", err)
	}
	d = &page.Document{
		Began: time.Now(), Again: again(args), Machine: fmt.Sprintf("on %d cores", runtime.NumCPU()),
		Config: play.Config{Client: []string{self, "client"}, Lease: o.lease, Rounds: o.rounds, Share: o.share,
			Seed: o.seed, Cost: o.cost, Times: o.times, Dir: scratch.Dir},
	}
	if o.fences != "" {
		stores, err := o.startStores(ctx, d, stdout)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stores.Close()) }()
		d.Config.Places = stores.Places
	}
	known, err := loadKnown(o.known)
	if err == nil {
		err = o.playAll(ctx, d, known, stdout)
	}
	if err != nil {
		return d, err
	}
	d.Took = known.took + time.Since(d.Began)
	if len(d.Results) == 0 {
		return d, errors.New("nothing of what was asked for can be played here")
	}
	return d, nil
}

// startStores starts the stores that the flags name, or all that can be started.
func (o options) startStores(ctx context.Context, d *page.Document, stdout io.Writer) (*store.Stores, error) {
	kinds := words(o.fences)
	if slices.Contains(kinds, "all") {
		kinds = nil
		for _, kind := range store.Kinds {
			if err := store.Needs(kind); err != nil {
				d.Missing = append(d.Missing, fmt.Sprintf("the fence in %s (%v)", kind, err))
				fmt.Fprintf(stdout, "the fence in %s: not played: %v\n", kind, err)
				continue
			}
			kinds = append(kinds, kind)
		}
	}
	return store.Start(ctx, d.Config.Dir, kinds)
}

// of are the ways of a system that are to be played.
func (o options) of(kind system.Kind) (all []lock.Way) {
	for _, way := range ways.All() {
		named := o.ways != "" && chosen(o.ways, way.Name)
		if way.System == kind.Name && (named || o.ways == "" && (o.twins || !way.Broken)) {
			all = append(all, way)
		}
	}
	return all
}

// playAll plays with all systems, some at the same time.
func (o options) playAll(ctx context.Context, d *page.Document, known *known, stdout io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, o.jobs)
	var mu sync.Mutex // of stdout and results
	var playing sync.WaitGroup
	results := make([][]judge.Result, len(system.Kinds()))
	for i, kind := range system.Kinds() {
		if !chosen(o.systems, kind.Name) || len(o.of(kind)) == 0 {
			continue
		}
		err := kind.Needs()
		if err == nil && o.cuts {
			err = jepsen.FindNetwork()
		}
		if err != nil {
			d.Missing = append(d.Missing, fmt.Sprintf("%s (%v)", kind.Name, err))
			fmt.Fprintf(stdout, "%s: not played: %v\n", kind.Name, err)
			continue
		}
		playing.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			played := func(r judge.Result, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				results[i] = append(results[i], r)
				o.tell(stdout, r, took)
			}
			for servers, faults := range o.stories(kind) {
				cfg := d.Config
				cfg.Servers = servers
				if err := o.playOn(ctx, kind, cfg, faults, known, played); err != nil {
					cancel(err)
				}
			}
		})
	}
	playing.Wait()
	d.Results = slices.Concat(results...)
	return context.Cause(ctx)
}

// stories are the stories to play with a system, by its number of servers for them; 0 is the
// system's own number.
func (o options) stories(kind system.Kind) iter.Seq2[int, []play.Fault] {
	return func(yield func(int, []play.Fault) bool) {
		if !o.cuts {
			yield(0, o.chosen(play.Faults))
			return
		}
		for _, size := range []int{2, 3, 4, 5} {
			faults := slices.DeleteFunc(o.chosen(play.Cuts), func(f play.Fault) bool {
				return f.Left+f.Right != size || !slices.Contains(kind.Cuts, [2]int{f.Left, f.Right})
			})
			if len(faults) > 0 && !yield(size, faults) {
				return
			}
		}
	}
}

// chosen are the stories that the flags name.
func (o options) chosen(faults []play.Fault) []play.Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f play.Fault) bool { return !chosen(o.faults, f.Name) })
}

// playOn plays stories with all ways of a system.
func (o options) playOn(ctx context.Context, kind system.Kind, cfg play.Config, faults []play.Fault, known *known,
	played func(judge.Result, time.Duration)) (err error) {
	var stage *play.Stage
	defer func() {
		if stage != nil {
			err = errors.Join(err, stage.Close())
		}
	}()
	for _, way := range o.of(kind) {
		for _, f := range faults {
			if way.Only != "" && way.Only != f.Name {
				continue
			}
			var whole *judge.Result
			began := time.Now()
			for from := 0; from < o.rounds && ctx.Err() == nil; from += o.together {
				key := o.key(way.Name, f.Name, from, min(from+o.together, o.rounds))
				r, ok := known.take(way, key)
				switch {
				case ok:
				case o.late(known):
					continue
				case stage == nil:
					if stage, err = play.NewStage(ctx, cfg, kind); err != nil {
						return err
					}
					fallthrough
				default:
					if r, err = o.batch(ctx, stage, way, f, key, known); err != nil {
						return err
					}
				}
				if whole == nil {
					whole = &r
				} else {
					whole.Merge(r)
				}
				if f.Name == play.None || r.Case.Skipped != "" {
					break
				}
			}
			if whole != nil {
				played(*whole, time.Since(began))
			}
		}
	}
	return ctx.Err()
}

// late says whether no more batches are to be begun.
func (o options) late(known *known) bool { return o.during > 0 && time.Since(known.began) > o.during }

// batch plays some rounds of a case.
func (o options) batch(ctx context.Context, stage *play.Stage, way lock.Way, f play.Fault, key knownKey, known *known,
) (r judge.Result, err error) {
	began := time.Now()
	late := measureLateness()
	c, err := stage.Play(ctx, way, f, key.From, key.To)
	most := late()
	if err != nil || ctx.Err() != nil {
		return r, errors.Join(err, ctx.Err())
	}
	r = judge.Result{Way: way, Case: c, Figures: judge.Judge(c)}
	r.Figures.Late = most
	return r, known.add(key, r, time.Since(began))
}

// latenessStep is how often the lateness is measured.
const latenessStep = 20 * time.Millisecond

// measureLateness measures by how much this program is late, because others have the processor. end
// ends it and returns the most.
func measureLateness() (end func() time.Duration) {
	stop := make(chan struct{})
	most := make(chan time.Duration)
	go func() {
		var late time.Duration
		for {
			due := time.Now().Add(latenessStep)
			select {
			case <-time.After(latenessStep):
				late = max(late, time.Since(due))
			case <-stop:
				most <- late
				return
			}
		}
	}()
	return func() time.Duration { close(stop); return <-most }
}

// tell prints a case: in a line, or as a story.
func (o options) tell(w io.Writer, r judge.Result, took time.Duration) {
	if o.explain == "" || len(r.Case.Rounds) == 0 {
		fmt.Fprintf(w, "%-46s %s (%.0f s)\n", r.Case.Name(), summary(r), took.Seconds())
		return
	}
	page.Story(w, r.Case, r.Case.Rounds[0])
}

// summary is a case in a line.
func summary(r judge.Result) string {
	text := strings.ReplaceAll(page.Cell(&r), "**", "")
	if c := r.Figures.Cost; c != nil {
		text += fmt.Sprintf("; %d acquisitions, %.2f ms alone, %.0f/s in turn", c.Acquisitions, c.LockP50Ms, c.PerSecond)
	}
	if v := r.Figures.Violations(r.Way, r.Case.Fault); len(v) > 0 {
		text += "; " + strings.Join(v, ", ")
	}
	if p := r.Figures.AllPlaces(); p.Rounds > 0 {
		text += fmt.Sprintf("; behind the fences of stores %d lost, %d refused", p.Lost, p.Refused)
	}
	if late := r.Figures.Late; late > r.Case.Lease/4 {
		text += fmt.Sprintf("; the machine was busy: the lab ran %.1f s late", late.Seconds())
	}
	for i, round := range r.Case.Rounds {
		if round.Broken != "" {
			text += fmt.Sprintf("; round %d: %s", i+1, round.Broken)
		}
	}
	return text
}

// again is the command line that does the same once more.
func again(args []string) string {
	return strings.TrimSpace("go run ./cmd/jepsen lock-lab " + strings.Join(args, " "))
}

// write writes the report.
func (o options) write(d *page.Document, stdout io.Writer) error {
	dir := o.report
	if dir == "" {
		dir = "jepsen-runs/lock-lab-" + d.Began.Format("20060102-150405")
	}
	if err := d.Write(dir); err != nil {
		return err
	}
	table, marker, text := o.tables(d)
	fmt.Fprintf(stdout, "\n%s\n%s\nThe page is %s/index.html\n", table.Text(), table.Explain(), dir)
	for _, outcome := range judge.Outcomes(d.Results) {
		if outcome.Verdict() != judge.NotPlayed {
			fmt.Fprintf(stdout, "%s, %s: %s\n", outcome.Verdict(), outcome.Text(), outcome.Says)
		}
	}
	if o.out == "" {
		return nil
	}
	return errors.Join(report.ReplaceTable(o.out, marker, text),
		d.Illustrate(strings.TrimSuffix(o.out, ".md"), words(o.pictures)))
}

// tables are the table for the terminal, and the tables for -out with the name of their place.
func (o options) tables(d *page.Document) (table page.Table, place, text string) {
	switch {
	case o.cuts:
		return d.Cuts(), "lock-lab-cuts", d.CutsMarkdown()
	case o.brief:
		return d.Brief(), "lock-lab-brief", d.BriefMarkdown()
	case o.long, o.fences != "" && o.ways != "": // else they are a column
		return d.Fences(), "lock-lab-fences", d.FencesMarkdown()
	}
	return d.Totals(), "lock-lab", d.Markdown()
}

// judge returns the forbidden outcomes: a lock that fails without a fault, one that a side without
// a majority gives away, and a planted bug that was not found although all its stories were played.
func (o options) judge(d *page.Document) (complaints []string) {
	found := make(map[string]int)
	for _, r := range d.Results {
		violations := r.Figures.Violations(r.Way, r.Case.Fault)
		switch {
		case r.Way.Broken:
			found[r.Way.Name] += len(violations)
		// A fence cannot help if the tokens do not grow, as etcd's with a disk that lies.
		case (r.Case.Fault == play.None || o.cuts || r.Figures.AllPlaces().Lost != 0 && r.Figures.Disorder == 0) &&
			len(violations) > 0:
			complaints = append(complaints, fmt.Sprintf("%s: %s", r.Case.Name(), strings.Join(violations, ", ")))
		}
	}
	for _, way := range ways.All() {
		if n, played := found[way.Name]; played && n == 0 && (o.faults == "" || chosen(o.faults, way.Only)) {
			complaints = append(complaints, way.Name+": the planted bug was not found")
		}
	}
	return complaints
}
