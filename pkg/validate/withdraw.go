package validate

import "github.com/margay-project/margay/pkg/model"

// Withdraw returns updates that say that what us are about is absent: the same keys with nil values, in the same
// order. InSync has no key and is left out.
func Withdraw(us []model.Update) []model.Update {
	var gone []model.Update
	for _, u := range us {
		switch u := u.(type) {
		case model.EndpointUpdate:
			gone = append(gone, model.EndpointUpdate{ID: u.ID})
		case model.ProfileUpdate:
			gone = append(gone, model.ProfileUpdate{Name: u.Name})
		case model.TierUpdate:
			gone = append(gone, model.TierUpdate{Name: u.Name})
		case model.PolicyUpdate:
			gone = append(gone, model.PolicyUpdate{Key: u.Key})
		case model.NetworkSetUpdate:
			gone = append(gone, model.NetworkSetUpdate{ID: u.ID})
		case model.ServiceUpdate:
			gone = append(gone, model.ServiceUpdate{Key: u.Key})
		case model.EndpointSliceUpdate:
			gone = append(gone, model.EndpointSliceUpdate{ID: u.ID})
		case model.NodeUpdate:
			gone = append(gone, model.NodeUpdate{Name: u.Name})
		}
	}
	return gone
}
