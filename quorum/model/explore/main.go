package main

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"lockkeeper/quorum/model"
)

func main() {
	var b model.Bounds
	flag.IntVar(&b.Members, "members", 3, "members, 1 to 4")
	flag.IntVar(&b.Terms, "terms", 2, "terms with elections, 1 to 4")
	flag.IntVar(&b.Writes, "writes", 1, "writes of clients")
	flag.IntVar(&b.Replaced, "replaced", 1, "disks that are replaced, one for each member at the most")
	flag.IntVar(&b.Returns, "returns", 0, "returns of disks that were replaced")
	flag.IntVar(&b.Words, "words", 0, "words of the operator at the first start")
	flag.IntVar(&b.Changes, "changes", 3, "configurations behind the first; a replaced disk takes three")
	flag.BoolVar(&b.Blank, "blank", false, "begin with blank disks, not with a cluster")
	flag.IntVar(&b.States, "states", 0, "give up beyond so many states; 0: never")
	find := flag.Int("find", 0, "look for states that break this invariant only, 1 to 4 in the order of "+
		"model.Invariant")
	rules := flag.String("rules", "", "fields of model.Rules to set, separated by commas")
	flag.Parse()
	b.Find = model.Invariant(*find)
	if err := explore(b, *rules); err != nil {
		fmt.Fprintln(os.Stderr, "explore:", err)
		os.Exit(1)
	}
}

func explore(b model.Bounds, names string) error {
	if b.Members < 1 || b.Members > model.MaxMembers || b.Terms < 1 || b.Terms >= model.MaxTerm {
		return fmt.Errorf("-members is 1 to %d, -terms is 1 to %d", model.MaxMembers, model.MaxTerm-1)
	}
	var r model.Rules
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		field := reflect.ValueOf(&r).Elem().FieldByName(name)
		if !field.IsValid() {
			return fmt.Errorf("model.Rules has no field %s", name)
		}
		field.SetBool(true)
	}
	m := model.New(r, b)
	start := time.Now()
	result, err := model.Explore(m)
	fmt.Printf("%d states, %d transitions, %d steps deep, %.1f s\n", result.States, result.Transitions, result.Depth,
		time.Since(start).Seconds())
	if err != nil {
		return err
	}
	if result.Broken != model.Kept {
		fmt.Print(m.Text(result.Script))
		return fmt.Errorf("a state breaks the contract: %v", result.Broken)
	}
	fmt.Println("every state keeps the contract")
	return nil
}
