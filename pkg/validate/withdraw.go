package validate

import "github.com/margay-project/margay/pkg/model"

// Withdraw returns updates that say that what us are about is absent: the same keys with nil values, in the same
// order. InSync is about no object and is left out.
func Withdraw(us []model.Update) []model.Update {
	var gone []model.Update
	for _, u := range us {
		if key, _ := model.KeyOf(u); key != model.InSyncKey {
			gone = append(gone, model.Absent(u))
		}
	}
	return gone
}
