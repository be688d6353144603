package workload

import (
	"fmt"
	"slices"
	"strings"
)

// workloads are all that need nothing beyond this program, in the order in which they are listed.
var workloads = []func() Workload{
	newRegister, newOrder, newBelief, newLock, newOnce, newEphemeral, newDurability,
}

// Libraries is the name of a workload that New knows, too. It starts processes with client
// libraries of other languages (Env.Libraries), which not every machine has and no simulation can
// hold: Names is without it.
const Libraries = librariesName

// Names are the workloads that need nothing beyond this program.
func Names() []string {
	var names []string
	for _, make := range workloads {
		names = append(names, make().name)
	}
	return names
}

// Steady reports whether the clients of a workload complete operations all the time, unless
// something is broken: those of belief only watch, and now and then cut themselves off; and what
// those of libraries do after an error is up to the libraries.
func Steady(name string) bool { return name != beliefName && name != librariesName }

// New is a workload for one run.
func New(name string) (Workload, error) {
	for _, make := range append(slices.Clone(workloads), newLibraries) {
		if w := make(); w.name == name {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("workload: there is no workload %q; there are %s, %s", name,
		strings.Join(Names(), ", "), librariesName)
}
