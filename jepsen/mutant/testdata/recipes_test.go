package recipes

import (
	"slices"
	"testing"

	"lockkeeper/jepsen/mutant"
)

// TestPlantedBugs plants one bug after the other; its drill finds it. The overlay adds this file
// to package recipes.
func TestPlantedBugs(t *testing.T) {
	most := uint64(max(*modelSchedules, 20000))
	for _, e := range mutant.Table {
		if e.Recipe == "" {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			if err := mutant.Use(e.Name); err != nil {
				t.Fatal(err)
			}
			defer mutant.Use("")
			d := drills[slices.IndexFunc(drills, func(d drill) bool { return d.name == e.Recipe })]
			for seed := *modelSeed; seed < *modelSeed+most; seed++ {
				if faults := d.schedule(t, seed); len(faults) > 0 {
					t.Logf("schedule %d: %s", seed-*modelSeed+1, faults[0])
					return
				}
			}
			t.Errorf("not found in %d schedules", most)
		})
	}
}
