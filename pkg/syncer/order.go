package syncer

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// DeletionsLast returns one list of updates: those of objects that are there, then the deletions. The consumer may flush
// after a part of many updates, and a policy that was renamed must not be missing then. A deletion is left out if one of
// changed has its key: another object of the datastore gives that key now.
//
// Both slices are the result's from now on.
func DeletionsLast(changed, deletions []model.Update) []model.Update {
	if len(deletions) == 0 {
		return changed
	}
	given := make(map[model.Key]struct{}, len(changed))
	for _, u := range changed {
		k, _ := model.KeyOf(u)
		given[k] = struct{}{}
	}
	return append(changed, slices.DeleteFunc(deletions, func(u model.Update) bool {
		k, _ := model.KeyOf(u)
		_, moved := given[k]
		return moved
	})...)
}
